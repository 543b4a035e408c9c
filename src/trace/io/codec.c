/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a common interface to the three libraries, and explaining their errors to users.
 */
#include "trace/io/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if FLW_HAS_LZMA
#include <lzma.h>
#endif
#if FLW_HAS_ZLIB
#include <zlib.h>
#endif
#if FLW_HAS_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

#define DICTIONARY_BYTES_MAX (UINT64_C(256) << 20) /* most memory for an archive's window */
#define DICTIONARY_LOG2_MAX  28
#define XZ_LEVEL             6
#define GZIP_LEVEL           6
#define ZSTD_LEVEL           3
#define ZSTD_SLICE_BYTES     ((size_t)4096)

struct flw_codec {
    enum flw_codec_kind kind;
    bool packs;
    bool is_between; /* unpacking: an archive has ended, no other has begun */
#if FLW_HAS_LZMA
    lzma_stream xz;
#endif
#if FLW_HAS_ZLIB
    z_stream gzip;
#endif
#if FLW_HAS_ZSTD
    ZSTD_DCtx *zstd;      /* NULL when packing */
    ZSTD_CCtx *zstd_pack; /* NULL when unpacking */
#endif
};

/* The text for an error of a library; the last one, with code 0, is for all others. */
struct problem {
    int code;
    const char *text;
};

#define NO_MEMORY "no memory to unpack it"

#if FLW_HAS_LZMA || FLW_HAS_ZLIB || FLW_HAS_ZSTD
static enum flw_codec_step fail(const struct problem *problems, int code, const char **out_problem)
{
    while (problems->code != code && problems->code != 0) {
        problems++;
    }
    *out_problem = problems->text;
    return FLW_CODEC_FAILED;
}
#endif

static void advance(struct flw_codec_buffers *buffers, size_t taken, size_t given)
{
    buffers->in += taken;
    buffers->in_count -= taken;
    buffers->out += given;
    buffers->out_room -= given;
}

/* ---- xz ---- */

#if FLW_HAS_LZMA
static const struct problem xz_problems[] = {
    {LZMA_MEM_ERROR, NO_MEMORY},
    {LZMA_MEMLIMIT_ERROR, "its dictionary is larger than 256 MiB; pack it with `xz -9` or less"},
    {LZMA_FORMAT_ERROR, "the .xz data is corrupt"},
    {LZMA_DATA_ERROR, "the .xz data is corrupt"},
    {LZMA_OPTIONS_ERROR, "this .xz variant is not supported"},
    {0, "the .xz data cannot be unpacked"},
};

static bool start_xz(struct flw_codec *codec)
{
    codec->xz = (lzma_stream)LZMA_STREAM_INIT;
    return (codec->packs ? lzma_easy_encoder(&codec->xz, XZ_LEVEL, LZMA_CHECK_CRC64)
                         : lzma_stream_decoder(&codec->xz, DICTIONARY_BYTES_MAX,
                                               LZMA_CONCATENATED)) == LZMA_OK;
}

static void end_xz(struct flw_codec *codec)
{
    lzma_end(&codec->xz);
}

static enum flw_codec_step run_xz(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                  const char **out_problem)
{
    lzma_stream *stream = &codec->xz;
    stream->next_in = buffers->in;
    stream->avail_in = buffers->in_count;
    stream->next_out = buffers->out;
    stream->avail_out = buffers->out_room;
    lzma_ret code = lzma_code(stream, buffers->in_is_last ? LZMA_FINISH : LZMA_RUN);
    advance(buffers, buffers->in_count - stream->avail_in, buffers->out_room - stream->avail_out);
    return code == LZMA_STREAM_END                     ? FLW_CODEC_ENDED
           : code == LZMA_OK || code == LZMA_BUF_ERROR ? FLW_CODEC_MORE
                                                       : fail(xz_problems, (int)code, out_problem);
}
#endif

/* ---- gzip ---- */

#if FLW_HAS_ZLIB
#define GZIP_WINDOW (15 + 16) /* the largest window; gzip's own header, not zlib's */
#define GZIP_MEMORY 8
#define GZIP_STEP   (UINT32_C(1) << 30) /* zlib counts in 32 bits */

static const struct problem gzip_problems[] = {
    {Z_MEM_ERROR, NO_MEMORY},
    {0, "the .gz data is corrupt"},
};

static bool start_gzip(struct flw_codec *codec)
{
    return (codec->packs ? deflateInit2(&codec->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW,
                                        GZIP_MEMORY, Z_DEFAULT_STRATEGY)
                         : inflateInit2(&codec->gzip, GZIP_WINDOW)) == Z_OK;
}

static void end_gzip(struct flw_codec *codec)
{
    (void)(codec->packs ? deflateEnd(&codec->gzip) : inflateEnd(&codec->gzip));
}

static enum flw_codec_step run_gzip(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                    const char **out_problem)
{
    z_stream *stream = &codec->gzip;
    uInt in_count = (uInt)(buffers->in_count < GZIP_STEP ? buffers->in_count : GZIP_STEP);
    uInt out_room = (uInt)(buffers->out_room < GZIP_STEP ? buffers->out_room : GZIP_STEP);
    bool is_last = buffers->in_is_last && in_count == buffers->in_count;
    if (codec->is_between && inflateReset2(stream, GZIP_WINDOW) != Z_OK) {
        return fail(gzip_problems, Z_MEM_ERROR, out_problem);
    }
    stream->next_in = (unsigned char *)(uintptr_t)buffers->in; /* zlib does not write here */
    stream->avail_in = in_count;
    stream->next_out = buffers->out;
    stream->avail_out = out_room;
    int code = codec->packs ? deflate(stream, is_last ? Z_FINISH : Z_NO_FLUSH)
                            : inflate(stream, Z_NO_FLUSH);
    advance(buffers, in_count - stream->avail_in, out_room - stream->avail_out);
    return code == Z_STREAM_END                  ? FLW_CODEC_ENDED
           : code == Z_OK || code == Z_BUF_ERROR ? FLW_CODEC_MORE
                                                 : fail(gzip_problems, code, out_problem);
}
#endif

/* ---- zstd ---- */

#if FLW_HAS_ZSTD
static const struct problem zstd_problems[] = {
    {ZSTD_error_memory_allocation, NO_MEMORY},
    {ZSTD_error_frameParameter_windowTooLarge,
     "its window is larger than 256 MiB; pack it with `zstd --long=28` or less"},
    {ZSTD_error_version_unsupported, "this .zst variant is not supported"},
    {ZSTD_error_frameParameter_unsupported, "this .zst variant is not supported"},
    {ZSTD_error_dictionary_wrong, "the .zst data needs a dictionary; pack it without"},
    {0, "the .zst data is corrupt"},
};

static bool start_zstd(struct flw_codec *codec)
{
    if (!codec->packs) {
        codec->zstd = ZSTD_createDCtx();
        return codec->zstd != NULL && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                          codec->zstd, ZSTD_d_windowLogMax, DICTIONARY_LOG2_MAX));
    }
    ZSTD_CCtx *pack = codec->zstd_pack = ZSTD_createCCtx();
    return pack != NULL &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(pack, ZSTD_c_compressionLevel, ZSTD_LEVEL)) &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(pack, ZSTD_c_checksumFlag, 1));
}

static void end_zstd(struct flw_codec *codec)
{
    ZSTD_freeDCtx(codec->zstd);
    ZSTD_freeCCtx(codec->zstd_pack);
}

static enum flw_codec_step run_zstd(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                    const char **out_problem)
{
    /* Unpack slices: a zstd call that fails does not report how much was consumed. */
    bool is_cut = !codec->packs && buffers->in_count > ZSTD_SLICE_BYTES;
    bool is_last = !codec->packs || buffers->in_is_last; /* a frame ends where it ends */
    ZSTD_inBuffer in = {buffers->in, is_cut ? ZSTD_SLICE_BYTES : buffers->in_count, 0};
    ZSTD_outBuffer out = {buffers->out, buffers->out_room, 0};
    size_t left = codec->packs ? ZSTD_compressStream2(codec->zstd_pack, &out, &in,
                                                      is_last ? ZSTD_e_end : ZSTD_e_continue)
                               : ZSTD_decompressStream(codec->zstd, &out, &in);
    advance(buffers, in.pos, out.pos);
    return ZSTD_isError(left)     ? fail(zstd_problems, (int)ZSTD_getErrorCode(left), out_problem)
           : is_last && left == 0 ? FLW_CODEC_ENDED
                                  : FLW_CODEC_MORE;
}
#endif

/* ---- any ---- */

static const struct library {
    const char *suffix, *magic;
    size_t magic_bytes;
    const char *lacks[2]; /* the message when the build lacks the library: unpacking, packing */
    const char *ends_early;
    bool (*start)(
        struct flw_codec *codec); /* NULL if this build lacks the library, like the others */
    void (*end)(struct flw_codec *codec);
    enum flw_codec_step (*run)(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                               const char **out_problem);
} libraries[] = {
#define KNOWS(ending, begin, library, unpacker, package)                                          \
    .suffix = (ending), .magic = (begin), .magic_bytes = sizeof(begin) - 1,                       \
    .lacks = {"packed as " ending " and this build has no " library ": run `" unpacker            \
              "` on it first, or install " package " and build again",                            \
              "this build has no " library " to pack it with: leave " ending " out of its name"}, \
    .ends_early = "the " ending " data ends early: it is truncated"
#define HAS(kind) .start = start_##kind, .end = end_##kind, .run = run_##kind
    [FLW_CODEC_PLAIN] = {.suffix = "", .magic = "", .lacks = {"not packed", "no kind of archive"}},
    [FLW_CODEC_XZ] = {KNOWS(".xz",
                            "\xFD"
                            "7zXZ\0",
                            "liblzma", "unxz -k", "liblzma-dev"),
#if FLW_HAS_LZMA
                      HAS(xz)
#endif
    },
    [FLW_CODEC_GZIP] = {KNOWS(".gz", "\x1F\x8B", "zlib", "gunzip -k", "zlib1g-dev"),
#if FLW_HAS_ZLIB
                        HAS(gzip)
#endif
    },
    [FLW_CODEC_ZSTD] = {KNOWS(".zst", "\x28\xB5\x2F\xFD", "libzstd", "unzstd", "libzstd-dev"),
#if FLW_HAS_ZSTD
                        HAS(zstd)
#endif
    },
#undef HAS
#undef KNOWS
};

enum flw_codec_kind flw_codec_tell(const unsigned char *bytes, size_t count)
{
    enum flw_codec_kind kind = FLW_CODEC_ZSTD;
    while (count < libraries[kind].magic_bytes ||
           memcmp(bytes, libraries[kind].magic, libraries[kind].magic_bytes) != 0) {
        kind--; /* PLAIN has no magic */
    }
    return kind;
}

enum flw_codec_kind flw_packer_tell(const char *path)
{
    enum flw_codec_kind kind = FLW_CODEC_ZSTD;
    size_t bytes = strlen(path), suffix_bytes;
    do {
        suffix_bytes = strlen(libraries[kind].suffix);
    } while ((bytes <= suffix_bytes ||
              strcmp(path + bytes - suffix_bytes, libraries[kind].suffix) != 0) &&
             --kind != FLW_CODEC_PLAIN);
    return kind;
}

struct flw_codec *flw_codec_create(enum flw_codec_kind kind, bool packs, const char **out_problem)
{
    const struct library *library = &libraries[kind];
    *out_problem = library->lacks[packs];
    if (library->start == NULL) {
        return NULL;
    }
    struct flw_codec *codec = calloc(1, sizeof(*codec));
    *out_problem = packs ? "no memory to pack it" : NO_MEMORY;
    if (codec == NULL) {
        return NULL;
    }
    codec->kind = kind;
    codec->packs = packs;
    if (!library->start(codec)) {
        flw_codec_destroy(codec);
        return NULL;
    }
    return codec;
}

void flw_codec_destroy(struct flw_codec *codec)
{
    if (codec != NULL) {
        libraries[codec->kind].end(codec);
        free(codec);
    }
}

enum flw_codec_step flw_codec_run(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                  const char **out_problem)
{
    const struct library *library = &libraries[codec->kind];
    size_t in_count = buffers->in_count, out_room = buffers->out_room;
    if (codec->packs) {
        return library->run(codec, buffers, out_problem);
    }
    if (codec->is_between) {
        while (codec->kind == FLW_CODEC_GZIP && buffers->in_count > 0 && *buffers->in == 0) {
            advance(buffers, 1, 0); /* tapes leave zero bytes after an archive */
        }
        if (buffers->in_count == 0) {
            return buffers->in_is_last ? FLW_CODEC_ENDED : FLW_CODEC_MORE;
        }
    }
    enum flw_codec_step step = library->run(codec, buffers, out_problem);
    codec->is_between = step == FLW_CODEC_ENDED;
    bool has_moved = buffers->in_count < in_count || buffers->out_room < out_room;
    if (step == FLW_CODEC_MORE && !has_moved && buffers->in_is_last) {
        *out_problem = library->ends_early;
        step = FLW_CODEC_FAILED;
    }
    return step == FLW_CODEC_FAILED ? step : FLW_CODEC_MORE;
}

/* ---- streams ---- */

#define ROOM_BYTES 65536
#define FULL_ERROR EIO

struct packer {
    FILE *to;
    struct flw_codec *codec;
    unsigned char room[ROOM_BYTES];
};

/* Pack all bytes; with is_end, complete the archive. */
static bool pack(struct packer *p, const char *bytes, size_t count, bool is_end)
{
    struct flw_codec_buffers buffers = {
        .in = (const unsigned char *)bytes, .in_count = count, .in_is_last = is_end};
    enum flw_codec_step step = FLW_CODEC_MORE;
    const char *problem;
    while (step == FLW_CODEC_MORE && (buffers.in_count > 0 || is_end)) {
        buffers.out = p->room;
        buffers.out_room = ROOM_BYTES;
        step = flw_codec_run(p->codec, &buffers, &problem);
        size_t given = ROOM_BYTES - buffers.out_room;
        if (step == FLW_CODEC_FAILED) {
            errno = FULL_ERROR;
        } else if (fwrite(p->room, 1, given, p->to) != given) {
            step = FLW_CODEC_FAILED; /* see errno */
        }
    }
    return step != FLW_CODEC_FAILED;
}

static ssize_t write_packed(void *cookie, const char *bytes, size_t count)
{
    return pack(cookie, bytes, count, false) ? (ssize_t)count : 0;
}

static void finish(struct packer *p)
{
    flw_codec_destroy(p->codec);
    free(p);
}

static int close_packed(void *cookie)
{
    bool is_packed = pack(cookie, NULL, 0, true);
    int error = errno;
    finish(cookie);
    errno = error;
    return is_packed ? 0 : EOF;
}

FILE *flw_packer_open(FILE *to, enum flw_codec_kind kind, const char **out_problem)
{
    static const cookie_io_functions_t calls = {.write = write_packed, .close = close_packed};
    struct packer *p = calloc(1, sizeof(*p));
    *out_problem = "no memory to pack it";
    if (p == NULL) {
        return NULL;
    }
    p->to = to;
    p->codec = flw_codec_create(kind, true, out_problem);
    FILE *file = p->codec != NULL ? fopencookie(p, "w", calls) : NULL;
    if (file == NULL) {
        finish(p);
    }
    return file;
}
