/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the three libraries behind one stream.
 */
#include "trace/packer.h"

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
#endif

#define ROOM_BYTES  65536
#define GZIP_LEVEL  6
#define GZIP_WINDOW (15 + 16) /* 16: with gzip's own header */
#define GZIP_MEMORY 8
#define XZ_LEVEL    6
#define ZSTD_LEVEL  3
#define FULL_ERROR  EIO

enum step {
    STEP_MORE,
    STEP_ENDED,
    STEP_FAILED
};

struct packer {
    FILE *to;
    enum flw_codec_kind kind;
    unsigned char *room;
#if FLW_HAS_LZMA
    lzma_stream xz;
#endif
#if FLW_HAS_ZLIB
    z_stream gzip;
#endif
#if FLW_HAS_ZSTD
    ZSTD_CCtx *zstd;
#endif
};

/* What one step may take and give, moved on by what it took and gave. */
struct buffers {
    const unsigned char *in;
    size_t in_count;
    unsigned char *out;
    size_t out_room;
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

/* ---- the libraries ----------------------------------------------------------------------------
 */

#if FLW_HAS_LZMA
static enum step step_xz(struct packer *p, struct buffers *b, bool is_end)
{
    p->xz.next_in = b->in;
    p->xz.avail_in = b->in_count;
    p->xz.next_out = b->out;
    p->xz.avail_out = b->out_room;
    lzma_ret code = lzma_code(&p->xz, is_end ? LZMA_FINISH : LZMA_RUN);
    *b = (struct buffers){p->xz.next_in, p->xz.avail_in, p->xz.next_out, p->xz.avail_out};
    return code == LZMA_STREAM_END ? STEP_ENDED : code == LZMA_OK ? STEP_MORE : STEP_FAILED;
}
#endif

#if FLW_HAS_ZLIB
static enum step step_gzip(struct packer *p, struct buffers *b, bool is_end)
{
    uInt in_count = (uInt)(b->in_count < ROOM_BYTES ? b->in_count : ROOM_BYTES);
    bool is_last = is_end && in_count == b->in_count;
    p->gzip.next_in = (Bytef *)(uintptr_t)b->in; /* not written to */
    p->gzip.avail_in = in_count;
    p->gzip.next_out = b->out;
    p->gzip.avail_out = (uInt)b->out_room;
    int code = deflate(&p->gzip, is_last ? Z_FINISH : Z_NO_FLUSH);
    b->in += in_count - p->gzip.avail_in;
    b->in_count -= in_count - p->gzip.avail_in;
    b->out = p->gzip.next_out;
    b->out_room = p->gzip.avail_out;
    return code == Z_STREAM_END                  ? STEP_ENDED
           : code == Z_OK || code == Z_BUF_ERROR ? STEP_MORE
                                                 : STEP_FAILED;
}
#endif

#if FLW_HAS_ZSTD
static enum step step_zstd(struct packer *p, struct buffers *b, bool is_end)
{
    ZSTD_inBuffer in = {b->in, b->in_count, 0};
    ZSTD_outBuffer out = {b->out, b->out_room, 0};
    size_t left = ZSTD_compressStream2(p->zstd, &out, &in, is_end ? ZSTD_e_end : ZSTD_e_continue);
    b->in += in.pos;
    b->in_count -= in.pos;
    b->out += out.pos;
    b->out_room -= out.pos;
    return ZSTD_isError(left) ? STEP_FAILED : is_end && left == 0 ? STEP_ENDED : STEP_MORE;
}
#endif

static enum step step(struct packer *p, struct buffers *b, bool is_end)
{
    (void)b; /* where there is no library at all */
    (void)is_end;
    switch (p->kind) {
#if FLW_HAS_LZMA
    case FLW_CODEC_XZ:
        return step_xz(p, b, is_end);
#endif
#if FLW_HAS_ZLIB
    case FLW_CODEC_GZIP:
        return step_gzip(p, b, is_end);
#endif
#if FLW_HAS_ZSTD
    case FLW_CODEC_ZSTD:
        return step_zstd(p, b, is_end);
#endif
    default:
        return STEP_FAILED;
    }
}

static bool begin(struct packer *p, const char **out_problem)
{
    *out_problem = "no memory to pack it";
    switch (p->kind) {
    case FLW_CODEC_XZ:
#if FLW_HAS_LZMA
        return lzma_easy_encoder(&p->xz, XZ_LEVEL, LZMA_CHECK_CRC64) == LZMA_OK;
#else
        *out_problem = "this build has no liblzma to pack it with: leave .xz out of its name";
        return false;
#endif
    case FLW_CODEC_GZIP:
#if FLW_HAS_ZLIB
        return deflateInit2(&p->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY,
                            Z_DEFAULT_STRATEGY) == Z_OK;
#else
        *out_problem = "this build has no zlib to pack it with: leave .gz out of its name";
        return false;
#endif
    case FLW_CODEC_ZSTD:
#if FLW_HAS_ZSTD
        p->zstd = ZSTD_createCCtx();
        return p->zstd != NULL &&
               !ZSTD_isError(
                   ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) &&
               !ZSTD_isError(ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, 1));
#else
        *out_problem = "this build has no libzstd to pack it with: leave .zst out of its name";
        return false;
#endif
    default:
        *out_problem = "nothing to pack it with";
        return false;
    }
}

static void finish(struct packer *p)
{
#if FLW_HAS_LZMA
    if (p->kind == FLW_CODEC_XZ) {
        lzma_end(&p->xz);
    }
#endif
#if FLW_HAS_ZLIB
    if (p->kind == FLW_CODEC_GZIP) {
        deflateEnd(&p->gzip);
    }
#endif
#if FLW_HAS_ZSTD
    ZSTD_freeCCtx(p->zstd);
#endif
    free(p->room);
    free(p);
}

/* ---- the stream -------------------------------------------------------------------------------
 */

/* All of the bytes; with is_end until the archive is complete. */
static bool pack(struct packer *p, const char *bytes, size_t count, bool is_end)
{
    struct buffers b = {.in = (const unsigned char *)bytes, .in_count = count};
    enum step done = STEP_MORE;
    while (done == STEP_MORE && (b.in_count > 0 || is_end)) {
        b.out = p->room;
        b.out_room = ROOM_BYTES;
        done = step(p, &b, is_end);
        size_t given = ROOM_BYTES - b.out_room;
        if (done == STEP_FAILED) {
            errno = FULL_ERROR;
        } else if (fwrite(p->room, 1, given, p->to) != given) {
            done = STEP_FAILED; /* errno says why */
        }
    }
    return done != STEP_FAILED;
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
    p->kind = kind;
    p->room = malloc(ROOM_BYTES);
    if (p->room == NULL || !begin(p, out_problem)) {
        finish(p);
        return NULL;
    }
    FILE *file = fopencookie(p, "w", calls);
    if (file == NULL) {
        finish(p);
    }
    return file;
}
