/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the stream around a codec.
 */
#include "trace/packer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* All of the bytes; with is_end until the archive is complete. */
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
            step = FLW_CODEC_FAILED; /* errno says why */
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
