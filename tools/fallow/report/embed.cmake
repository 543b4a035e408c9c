# SPDX-License-Identifier: Apache-2.0
# cmake -P embed.cmake FILE OUT.h SYMBOL: a file as an array of bytes, and the macro SYMBOL_sha256: the
# base64 of its SHA-256, as a page's content policy names a script.
set(in ${CMAKE_ARGV3})
set(out ${CMAKE_ARGV4})
set(name ${CMAKE_ARGV5})
file(READ ${in} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(SHA256 ${in} digest)
set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
set(base64)
string(APPEND digest 00) # 66 digits of 4 bits are 44 letters of 6
foreach(at RANGE 0 63 3)
  string(SUBSTRING ${digest} ${at} 3 digits)
  math(EXPR high "0x${digits} >> 6")
  math(EXPR low "0x${digits} & 63")
  string(SUBSTRING ${letters} ${high} 1 high)
  string(SUBSTRING ${letters} ${low} 1 low)
  string(APPEND base64 ${high}${low})
endforeach()
string(SUBSTRING ${base64} 0 43 base64)
file(WRITE ${out} "static const unsigned char ${name}[] = {\n${bytes}\n};\n#define ${name}_sha256 \"${base64}=\"\n")
