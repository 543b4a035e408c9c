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
    bool is_between; /* gzip, zstd: between two archives */
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

#if FLW_HAS_LZMA || FLW_HAS_ZLIB || FLW_HAS_ZSTD
static enum flw_codec_step fail(const char **out_problem, const char *problem)
{
    *out_problem = problem;
    return FLW_CODEC_FAILED;
}
#endif

enum flw_codec_kind flw_codec_tell(const unsigned char *bytes, size_t count)
{
    static const unsigned char xz[] = {0xFD, '7', 'z', 'X', 'Z', 0};
    static const unsigned char gzip[] = {0x1F, 0x8B};
    static const unsigned char zstd[] = {0x28, 0xB5, 0x2F, 0xFD};
    if (count >= sizeof(xz) && memcmp(bytes, xz, sizeof(xz)) == 0) {
        return FLW_CODEC_XZ;
    }
    if (count >= sizeof(gzip) && memcmp(bytes, gzip, sizeof(gzip)) == 0) {
        return FLW_CODEC_GZIP;
    }
    if (count >= sizeof(zstd) && memcmp(bytes, zstd, sizeof(zstd)) == 0) {
        return FLW_CODEC_ZSTD;
    }
    return FLW_CODEC_PLAIN;
}

/* ---- xz ---- */

#if FLW_HAS_LZMA
static const char *start_xz(struct flw_codec *codec)
{
    codec->xz = (lzma_stream)LZMA_STREAM_INIT;
    return lzma_stream_decoder(&codec->xz, DICTIONARY_BYTES_MAX, LZMA_CONCATENATED) == LZMA_OK
               ? NULL
               : "no memory to unpack it";
}

static const char *xz_problem(lzma_ret code)
{
    switch (code) {
    case LZMA_MEM_ERROR:
        return "no memory to unpack it";
    case LZMA_MEMLIMIT_ERROR:
        return "its dictionary is larger than 256 MiB; pack it with `xz -9` or less";
    case LZMA_FORMAT_ERROR:
    case LZMA_DATA_ERROR:
        return "the .xz data is corrupt";
    case LZMA_OPTIONS_ERROR:
        return "this .xz variant is not supported";
    case LZMA_BUF_ERROR:
        return "the .xz data ends early: it is truncated";
    default:
        return "the .xz data cannot be unpacked";
    }
}

static const char *start_xz_pack(struct flw_codec *codec)
{
    codec->xz = (lzma_stream)LZMA_STREAM_INIT;
    return lzma_easy_encoder(&codec->xz, XZ_LEVEL, LZMA_CHECK_CRC64) == LZMA_OK
               ? NULL
               : "no memory to pack it";
}

static void end_xz(struct flw_codec *codec)
{
    lzma_end(&codec->xz);
}

/* Pack or unpack. */
static lzma_ret step_xz(lzma_stream *stream, struct flw_codec_buffers *buffers)
{
    stream->next_in = buffers->in;
    stream->avail_in = buffers->in_count;
    stream->next_out = buffers->out;
    stream->avail_out = buffers->out_room;
    lzma_ret code = lzma_code(stream, buffers->in_is_last ? LZMA_FINISH : LZMA_RUN);
    buffers->in = stream->next_in;
    buffers->in_count = stream->avail_in;
    buffers->out = stream->next_out;
    buffers->out_room = stream->avail_out;
    return code;
}

static enum flw_codec_step pack_xz(struct flw_codec *codec, struct flw_codec_buffers *buffers)
{
    lzma_ret code = step_xz(&codec->xz, buffers);
    return code == LZMA_STREAM_END ? FLW_CODEC_ENDED
           : code == LZMA_OK       ? FLW_CODEC_MORE
                                   : FLW_CODEC_FAILED;
}

static enum flw_codec_step unpack_xz(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                     const char **out_problem)
{
    size_t in_count = buffers->in_count, out_room = buffers->out_room;
    lzma_ret code = step_xz(&codec->xz, buffers);
    bool has_moved = buffers->in_count < in_count || buffers->out_room < out_room;
    if (code == LZMA_STREAM_END) {
        return FLW_CODEC_ENDED;
    }
    if (code == LZMA_OK || (code == LZMA_BUF_ERROR && (has_moved || !buffers->in_is_last))) {
        return FLW_CODEC_MORE;
    }
    return fail(out_problem, xz_problem(code));
}
#endif

/* ---- gzip ---- */

#if FLW_HAS_ZLIB
#define GZIP_WINDOW (15 + 16) /* the largest window; gzip's own header, not zlib's */
#define GZIP_MEMORY 8
#define GZIP_STEP   (UINT32_C(1) << 30) /* zlib counts in 32 bits */

static const char *start_gzip(struct flw_codec *codec)
{
    return inflateInit2(&codec->gzip, GZIP_WINDOW) == Z_OK ? NULL : "no memory to unpack it";
}

static const char *start_gzip_pack(struct flw_codec *codec)
{
    return deflateInit2(&codec->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                        Z_DEFAULT_STRATEGY) == Z_OK
               ? NULL
               : "no memory to pack it";
}

static void end_gzip(struct flw_codec *codec)
{
    (void)(codec->packs ? deflateEnd(&codec->gzip) : inflateEnd(&codec->gzip));
}

static const char *gzip_problem(int code)
{
    return code == Z_MEM_ERROR ? "no memory to unpack it" : "the .gz data is corrupt";
}

/* Skip the padding of zero bytes that tapes leave after an archive. */
static bool skip_padding(struct flw_codec_buffers *buffers)
{
    while (buffers->in_count > 0 && *buffers->in == 0) {
        buffers->in++;
        buffers->in_count--;
    }
    return buffers->in_count > 0;
}

/* Pack or unpack. */
static int step_gzip(struct flw_codec *codec, struct flw_codec_buffers *buffers)
{
    z_stream *stream = &codec->gzip;
    uInt in_count = (uInt)(buffers->in_count < GZIP_STEP ? buffers->in_count : GZIP_STEP);
    uInt out_room = (uInt)(buffers->out_room < GZIP_STEP ? buffers->out_room : GZIP_STEP);
    bool is_last = buffers->in_is_last && in_count == buffers->in_count;
    stream->next_in = (unsigned char *)(uintptr_t)buffers->in; /* zlib does not write here */
    stream->avail_in = in_count;
    stream->next_out = buffers->out;
    stream->avail_out = out_room;
    int code = codec->packs ? deflate(stream, is_last ? Z_FINISH : Z_NO_FLUSH)
                            : inflate(stream, Z_NO_FLUSH);
    buffers->in = stream->next_in;
    buffers->in_count -= in_count - stream->avail_in;
    buffers->out = stream->next_out;
    buffers->out_room -= out_room - stream->avail_out;
    return code;
}

static enum flw_codec_step pack_gzip(struct flw_codec *codec, struct flw_codec_buffers *buffers)
{
    int code = step_gzip(codec, buffers);
    return code == Z_STREAM_END                  ? FLW_CODEC_ENDED
           : code == Z_OK || code == Z_BUF_ERROR ? FLW_CODEC_MORE
                                                 : FLW_CODEC_FAILED;
}

static enum flw_codec_step unpack_gzip(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                       const char **out_problem)
{
    if (codec->is_between) {
        if (!skip_padding(buffers)) {
            return buffers->in_is_last ? FLW_CODEC_ENDED : FLW_CODEC_MORE;
        }
        if (inflateReset2(&codec->gzip, GZIP_WINDOW) != Z_OK) {
            return fail(out_problem, "no memory to unpack it");
        }
        codec->is_between = false;
    }
    size_t in_count = buffers->in_count, out_room = buffers->out_room;
    int code = step_gzip(codec, buffers);
    bool has_moved = buffers->in_count < in_count || buffers->out_room < out_room;
    if (code == Z_STREAM_END) {
        codec->is_between = true;
        return FLW_CODEC_MORE;
    }
    if (code != Z_OK && code != Z_BUF_ERROR) {
        return fail(out_problem, gzip_problem(code));
    }
    if (!has_moved && buffers->in_is_last) {
        return fail(out_problem, "the .gz data ends early: it is truncated");
    }
    return FLW_CODEC_MORE;
}
#endif

/* ---- zstd ---- */

#if FLW_HAS_ZSTD
static const char *start_zstd(struct flw_codec *codec)
{
    codec->is_between = true;
    codec->zstd = ZSTD_createDCtx();
    if (codec->zstd == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(codec->zstd, ZSTD_d_windowLogMax,
                                                                   DICTIONARY_LOG2_MAX))) {
        return "no memory to unpack it";
    }
    return NULL;
}

static const char *zstd_problem(size_t code)
{
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_memory_allocation:
        return "no memory to unpack it";
    case ZSTD_error_frameParameter_windowTooLarge:
        return "its window is larger than 256 MiB; pack it with `zstd --long=28` or less";
    case ZSTD_error_version_unsupported:
    case ZSTD_error_frameParameter_unsupported:
        return "this .zst variant is not supported";
    case ZSTD_error_dictionary_wrong:
        return "the .zst data needs a dictionary; pack it without";
    default:
        return "the .zst data is corrupt";
    }
}

static const char *start_zstd_pack(struct flw_codec *codec)
{
    codec->zstd_pack = ZSTD_createCCtx();
    return codec->zstd_pack != NULL &&
                   !ZSTD_isError(ZSTD_CCtx_setParameter(codec->zstd_pack, ZSTD_c_compressionLevel,
                                                        ZSTD_LEVEL)) &&
                   !ZSTD_isError(ZSTD_CCtx_setParameter(codec->zstd_pack, ZSTD_c_checksumFlag, 1))
               ? NULL
               : "no memory to pack it";
}

static void end_zstd(struct flw_codec *codec)
{
    ZSTD_freeDCtx(codec->zstd);
    ZSTD_freeCCtx(codec->zstd_pack);
}

static void move_zstd(struct flw_codec_buffers *buffers, size_t taken, size_t given)
{
    buffers->in += taken;
    buffers->in_count -= taken;
    buffers->out += given;
    buffers->out_room -= given;
}

static enum flw_codec_step pack_zstd(struct flw_codec *codec, struct flw_codec_buffers *buffers)
{
    bool is_last = buffers->in_is_last;
    ZSTD_inBuffer in = {buffers->in, buffers->in_count, 0};
    ZSTD_outBuffer out = {buffers->out, buffers->out_room, 0};
    size_t left =
        ZSTD_compressStream2(codec->zstd_pack, &out, &in, is_last ? ZSTD_e_end : ZSTD_e_continue);
    move_zstd(buffers, in.pos, out.pos);
    return ZSTD_isError(left)     ? FLW_CODEC_FAILED
           : is_last && left == 0 ? FLW_CODEC_ENDED
                                  : FLW_CODEC_MORE;
}

static enum flw_codec_step unpack_zstd(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                       const char **out_problem)
{
    if (codec->is_between && buffers->in_count == 0) {
        return buffers->in_is_last ? FLW_CODEC_ENDED : FLW_CODEC_MORE;
    }
    /* Feed slices: a zstd call that fails does not report how much was consumed. */
    size_t slice = buffers->in_count < ZSTD_SLICE_BYTES ? buffers->in_count : ZSTD_SLICE_BYTES;
    ZSTD_inBuffer in = {buffers->in, slice, 0};
    ZSTD_outBuffer out = {buffers->out, buffers->out_room, 0};
    size_t left = ZSTD_decompressStream(codec->zstd, &out, &in);
    move_zstd(buffers, in.pos, out.pos);
    if (ZSTD_isError(left)) {
        return fail(out_problem, zstd_problem(left));
    }
    codec->is_between = left == 0;
    if (in.pos == 0 && out.pos == 0 && buffers->in_is_last && !codec->is_between) {
        return fail(out_problem, "the .zst data ends early: it is truncated");
    }
    return FLW_CODEC_MORE;
}
#endif

/* ---- any ---- */

/* Functions for each kind; NULL if this build lacks the library. */
static const struct library {
    const char *lacks_unpack, *lacks_pack;
    const char *(*start)(struct flw_codec *codec), *(*start_pack)(struct flw_codec *codec);
    void (*end)(struct flw_codec *codec);
    enum flw_codec_step (*unpack)(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                  const char **out_problem);
    enum flw_codec_step (*pack)(struct flw_codec *codec, struct flw_codec_buffers *buffers);
} libraries[] = {
#define LACKS(suffix, library, unpacker, package)                                            \
    .lacks_unpack = "packed as " suffix " and this build has no " library ": run `" unpacker \
                    "` on it first, or install " package " and build again",                 \
    .lacks_pack =                                                                            \
        "this build has no " library " to pack it with: leave " suffix " out of its name"
#define HAS(kind)                                                                \
    .start = start_##kind, .start_pack = start_##kind##_pack, .end = end_##kind, \
    .unpack = unpack_##kind, .pack = pack_##kind
    [FLW_CODEC_PLAIN] = {.lacks_unpack = "not packed", .lacks_pack = "nothing to pack it with"},
    [FLW_CODEC_XZ] = {LACKS(".xz", "liblzma", "unxz -k", "liblzma-dev"),
#if FLW_HAS_LZMA
                      HAS(xz)
#endif
    },
    [FLW_CODEC_GZIP] = {LACKS(".gz", "zlib", "gunzip -k", "zlib1g-dev"),
#if FLW_HAS_ZLIB
                        HAS(gzip)
#endif
    },
    [FLW_CODEC_ZSTD] = {LACKS(".zst", "libzstd", "unzstd", "libzstd-dev"),
#if FLW_HAS_ZSTD
                        HAS(zstd)
#endif
    },
#undef HAS
#undef LACKS
};

static struct flw_codec *create(enum flw_codec_kind kind, bool packs, const char **out_problem)
{
    const struct library *library = &libraries[kind];
    *out_problem = packs ? library->lacks_pack : library->lacks_unpack;
    if (library->start == NULL) {
        return NULL;
    }
    struct flw_codec *codec = calloc(1, sizeof(*codec));
    *out_problem = packs ? "no memory to pack it" : "no memory to unpack it";
    if (codec == NULL) {
        return NULL;
    }
    codec->kind = kind;
    codec->packs = packs;
    *out_problem = packs ? library->start_pack(codec) : library->start(codec);
    if (*out_problem != NULL) {
        flw_codec_destroy(codec);
        return NULL;
    }
    return codec;
}

struct flw_codec *flw_codec_create(enum flw_codec_kind kind, const char **out_problem)
{
    return create(kind, false, out_problem);
}

struct flw_codec *flw_codec_create_packer(enum flw_codec_kind kind, const char **out_problem)
{
    return create(kind, true, out_problem);
}

void flw_codec_destroy(struct flw_codec *codec)
{
    if (codec != NULL) {
        libraries[codec->kind].end(codec);
        free(codec);
    }
}

enum flw_codec_step flw_codec_unpack(struct flw_codec *codec, struct flw_codec_buffers *buffers,
                                     const char **out_problem)
{
    return libraries[codec->kind].unpack(codec, buffers, out_problem);
}

enum flw_codec_step flw_codec_pack(struct flw_codec *codec, struct flw_codec_buffers *buffers)
{
    return libraries[codec->kind].pack(codec, buffers);
}

/* ---- streams ---- */

#define ROOM_BYTES 65536
#define FULL_ERROR EIO

struct packer {
    FILE *to;
    struct flw_codec *codec;
    unsigned char *room;
};

enum flw_codec_kind flw_packer_tell(const char *path)
{
    static const struct {
        const char *ending;
        enum flw_codec_kind kind;
    } endings[] = {{".xz", FLW_CODEC_XZ}, {".gz", FLW_CODEC_GZIP}, {".zst", FLW_CODEC_ZSTD}};
    size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t ending_bytes = strlen(endings[i].ending);
        if (bytes > ending_bytes && strcmp(path + bytes - ending_bytes, endings[i].ending) == 0) {
            return endings[i].kind;
        }
    }
    return FLW_CODEC_PLAIN;
}

static void finish(struct packer *p)
{
    flw_codec_destroy(p->codec);
    free(p->room);
    free(p);
}

/* Pack all bytes; with is_end, complete the archive. */
static bool pack(struct packer *p, const char *bytes, size_t count, bool is_end)
{
    struct flw_codec_buffers buffers = {
        .in = (const unsigned char *)bytes, .in_count = count, .in_is_last = is_end};
    enum flw_codec_step step = FLW_CODEC_MORE;
    while (step == FLW_CODEC_MORE && (buffers.in_count > 0 || is_end)) {
        buffers.out = p->room;
        buffers.out_room = ROOM_BYTES;
        step = flw_codec_pack(p->codec, &buffers);
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
    p->room = malloc(ROOM_BYTES);
    p->codec = p->room != NULL ? flw_codec_create_packer(kind, out_problem) : NULL;
    if (p->codec == NULL) {
        finish(p);
        return NULL;
    }
    FILE *file = fopencookie(p, "w", calls);
    if (file == NULL) {
        *out_problem = "no memory to pack it";
        finish(p);
    }
    return file;
}
