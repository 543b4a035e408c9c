/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the verbs of script files that allocate, free, use and compare blocks; verbs.c has the others.
 */
#include "unit/pool/script.h"

#include "fallow/extend.h"

#define cu (script.sim.cu)

/* Split "NAME/N" (every N-th block), "NAME:I" (one) or "NAME+BYTES" (a pointer into the last). */
static struct script_blocks *pick(char *word, size_t *out_first, size_t *out_step,
                                  uint64_t *out_offset)
{
    size_t length = strcspn(word, "/:+-");
    char mark = word[length];
    uint64_t value = mark != '\0' ? script_value(word + length + 1) : 0;
    word[length] = '\0';
    struct script_blocks *blocks = script_blocks_of(word, false);
    *out_first = mark == ':' ? value : 0;
    *out_step = mark == '/' ? value : mark == ':' ? SIZE_MAX / 2 : 1;
    *out_offset = mark == '+' ? value : mark == '-' ? -value : 0;
    if (mark == '+' || mark == '-') {
        *out_first = blocks->count - 1;
    }
    return blocks;
}

void script_keep_block(struct script_call *call, const char *name, void *ptr, size_t bytes,
                       CUstream stream)
{
    struct script_blocks *blocks = script_blocks_of(name, true);
    if (blocks->is_freed) {
        blocks->count = 0;
        blocks->is_freed = false;
    }
    if (blocks->count == blocks->capacity) {
        blocks->capacity = 2 * blocks->capacity + 16;
        blocks->ptrs = realloc(blocks->ptrs, blocks->capacity * sizeof *blocks->ptrs);
        blocks->sizes = realloc(blocks->sizes, blocks->capacity * sizeof *blocks->sizes);
        blocks->streams = realloc(blocks->streams, blocks->capacity * sizeof *blocks->streams);
    }
    blocks->pool = call->pool;
    blocks->ptrs[blocks->count] = ptr;
    blocks->sizes[blocks->count] = bytes;
    blocks->streams[blocks->count++] = stream;
}

static uint32_t flags_of(const struct script_call *call)
{
    static const struct {
        const char *name;
        uint32_t flag;
    } flags[] = {{"every", FALLOW_REQUEST_EVERY_STREAM},  {"zero", FALLOW_REQUEST_ZERO},
                 {"dedicated", FALLOW_REQUEST_DEDICATED}, {"no-wait", FALLOW_REQUEST_NO_WAIT},
                 {"no-grow", FALLOW_REQUEST_NO_GROW},     {"fd", FALLOW_REQUEST_EXPORT_FD},
                 {"fabric", FALLOW_REQUEST_EXPORT_FABRIC}};
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        sum |= script_has(call, flags[i].name) ? flags[i].flag : 0;
    }
    return sum;
}

static bool is_option(const char *word)
{
    static const char *const words[] = {"every",   "zero", "dedicated", "no-wait",
                                        "no-grow", "fd",   "fabric"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], word) == 0) {
            return true;
        }
    }
    return strchr(word, '=') != NULL;
}

static fallow_status alloc_one(struct script_call *call, size_t bytes)
{
    CUstream stream = call->count > 3 && !is_option(call->words[3]) ? script_stream(call->words[3])
                                                                    : script_stream("s");
    fallow_request request;
    void *ptr = &request;
    script_know(call, call->count > 3 && !is_option(call->words[3]) ? 4 : 3,
                "every zero dedicated no-wait no-grow fd fabric tag= align= ");
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = flags_of(call);
    request.tag = (uint32_t)script_number_of(call, "tag", 0);
    request.align_bytes = script_number_of(call, "align", 0);
    bool is_plain = request.flags == 0 && request.tag == 0;
    fallow_status status =
        !is_plain ? fallow_alloc_request(call->pool, &request, stream, &ptr)
        : request.align_bytes != 0
            ? fallow_alloc_aligned(call->pool, bytes, request.align_bytes, stream, &ptr)
            : fallow_alloc(call->pool, bytes, stream, &ptr);
    if ((status != FALLOW_OK || bytes == 0) != (ptr == NULL)) {
        script_fail("%s, but the pointer is %p", fallow_status_name(status), ptr);
    }
    if (request.align_bytes != 0 && (uintptr_t)ptr % request.align_bytes != 0) {
        script_fail("%p is not aligned", ptr);
    }
    if (status == FALLOW_OK) {
        script_keep_block(call, call->words[1], ptr, bytes, stream);
    }
    return status;
}

/* a NAME [COUNT*]SIZE [STREAM] [FLAG...] [tag=N] [align=N] */
fallow_status script_run_alloc(struct script_call *call)
{
    char *star = strchr(call->words[2], '*');
    fallow_status status = FALLOW_OK;
    uint64_t count = 1;
    if (star != NULL) {
        *star = '\0';
        count = script_value(call->words[2]);
    }
    size_t bytes = script_value(star != NULL ? star + 1 : call->words[2]);
    for (uint64_t i = 0; i < count && status == FALLOW_OK; i++) {
        status = alloc_one(call, bytes);
    }
    return status;
}

/* Like `a`, until the first failure, whose status is returned. */
fallow_status script_run_fill(struct script_call *call)
{
    fallow_status status = FALLOW_OK;
    size_t bytes = script_value(call->words[2]);
    for (unsigned i = 0; i < 1000000 && status == FALLOW_OK; i++) {
        status = alloc_one(call, bytes);
    }
    return status;
}

/* Run `one` for the blocks of the word; stop at the first status other than OK. */
fallow_status script_each_block(struct script_call *call,
                                fallow_status (*one)(struct script_call *call,
                                                     struct script_blocks *blocks, size_t i,
                                                     void *ptr))
{
    size_t first, step;
    uint64_t offset;
    struct script_blocks *blocks = pick(call->words[1], &first, &step, &offset);
    fallow_status status = FALLOW_OK;
    call->pool = strchr(call->text, '@') != NULL && strchr(call->text, '@') < call->rest
                     ? call->pool
                     : blocks->pool;
    if (first >= blocks->count) {
        script_fail("'%s' has %zu blocks", blocks->name, blocks->count);
    }
    for (size_t i = first; i < blocks->count && status == FALLOW_OK; i += step) {
        status = one(call, blocks, i, (char *)blocks->ptrs[i] + offset);
    }
    return status;
}

static fallow_status free_one(struct script_call *call, struct script_blocks *blocks, size_t i,
                              void *ptr)
{
    CUstream stream = call->count > 2 && strchr(call->words[2], '=') == NULL
                          ? script_stream(call->words[2])
                          : blocks->streams[i];
    return script_option(call, "sized") != NULL
               ? fallow_free_sized(call->pool, ptr, script_number_of(call, "sized", 0), stream)
               : fallow_free(call->pool, ptr, stream);
}

static void forget_freed(struct script_call *call, const char *word, char mark, uint64_t value)
{
    struct script_blocks *blocks = script_blocks_of(word, false);
    size_t kept = 0;
    (void)call;
    if (mark != '/' && mark != ':') {
        blocks->is_freed = true;
        return;
    }
    for (size_t i = 0; i < blocks->count; i++) {
        if (mark == '/' ? i % value != 0 : i != value) {
            blocks->ptrs[kept] = blocks->ptrs[i];
            blocks->sizes[kept] = blocks->sizes[i];
            blocks->streams[kept++] = blocks->streams[i];
        }
    }
    blocks->count = kept;
}

/* f NAME [STREAM] [sized=N]: on the stream of the allocation, if none is named. The addresses stay known. */
fallow_status script_run_free(struct script_call *call)
{
    size_t length = strcspn(call->words[1], "/:+-");
    char mark = call->words[1][length];
    uint64_t value = mark == '/' || mark == ':' ? script_value(call->words[1] + length + 1) : 0;
    fallow_status status = script_each_block(call, free_one);
    if (status == FALLOW_OK && mark != '+' && mark != '-') {
        forget_freed(call, call->words[1], mark, value);
    }
    return status;
}

static fallow_status use_one(struct script_call *call, struct script_blocks *blocks, size_t i,
                             void *ptr)
{
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, blocks->sizes[i], 1, 0};
    script_cuda(
        script.sim.touch(call->count > 2 ? script_stream(call->words[2]) : blocks->streams[i],
                         &range, 1),
        "touch");
    return FALLOW_OK;
}

/* use NAME [STREAM]: the device writes all of the blocks. */
fallow_status script_run_use(struct script_call *call)
{
    return script_each_block(call, use_one);
}

/* once SIZE STREAM: allocate, use and free. */
fallow_status script_run_once(struct script_call *call)
{
    void *ptr = NULL;
    size_t bytes = script_value(call->words[1]);
    CUstream stream = script_stream(call->count > 2 ? call->words[2] : "s");
    fallow_status status = fallow_alloc(call->pool, bytes, stream, &ptr);
    if (status == FALLOW_OK) {
        flw_sim_range range = {(uint64_t)(uintptr_t)ptr, bytes, 1, 0};
        script_cuda(script.sim.touch(stream, &range, 1), "touch");
        status = fallow_free(call->pool, ptr, stream);
    }
    return status;
}

static fallow_status holds_one(struct script_call *call, struct script_blocks *blocks, size_t i,
                               void *ptr)
{
    unsigned char *copy = malloc(blocks->sizes[i]),
                  value = (unsigned char)script_value(call->words[2]);
    script_cuda(cu.cuMemcpyDtoH_v2(copy, (CUdeviceptr)(uintptr_t)ptr, blocks->sizes[i]),
                "cuMemcpyDtoH");
    for (size_t at = 0; at < blocks->sizes[i]; at++) {
        if (copy[at] != value) {
            script_fail("byte %zu is %u", at, copy[at]);
        }
    }
    free(copy);
    return FALLOW_OK;
}

fallow_status script_run_holds(struct script_call *call)
{
    return script_each_block(call, holds_one);
}

/* differ A B: no address of A is one of B. */
fallow_status script_run_differ(struct script_call *call)
{
    const struct script_blocks *a = script_blocks_of(call->words[1], false),
                               *b = script_blocks_of(call->words[2], false);
    for (size_t i = 0; i < a->count; i++) {
        for (size_t k = 0; k < b->count; k++) {
            if (a->ptrs[i] == b->ptrs[k]) {
                script_fail("both have %p", a->ptrs[i]);
            }
        }
    }
    return FALLOW_OK;
}

/* range NAME: the driver's address range of the last block, as `range` (base - block) and `range_bytes`. */
fallow_status script_run_alone(struct script_call *call)
{
    const struct script_blocks *blocks = script_blocks_of(call->words[1], false);
    CUdeviceptr base = 0, at = (CUdeviceptr)(uintptr_t)blocks->ptrs[blocks->count - 1];
    size_t bytes = 0, own = blocks->sizes[blocks->count - 1];
    script_cuda(cu.cuMemGetAddressRange_v2(&base, &bytes, at), "cuMemGetAddressRange");
    bool is_alone = base == at && bytes >= own && bytes - own < (2u << 20);
    bool is_one = at >= base && at + own <= base + bytes;
    if (script_has(call, "divided") ? is_one : script_has(call, "within") ? !is_one : !is_alone) {
        script_fail("%zu bytes at %llx are in the range of %zu bytes at %llx", own,
                    (unsigned long long)at, bytes, (unsigned long long)base);
    }
    return FALLOW_OK;
}
