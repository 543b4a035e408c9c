/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/formats/mistaken.h"

#include <string.h>

#define SNAPSHOT                                                                       \
    "give the pickle that _dump_snapshot() of torch.cuda.memory, torch.xpu.memory or " \
    "torch_npu.npu.memory writes"

/* Kind of a file that begins with `begin` and contains both other texts in the first bytes. The first match counts. */
struct kind {
    const char *begin;
    size_t begin_bytes;
    const char *has, *has_too; /* NULL: no condition */
    const char *message;       /* NULL: not a mistake */
};

#define TIMELINE                                                                        \
    "what export_memory_timeline() writes, sums without blocks; give the profile that " \
    "export_chrome_trace() writes"
#define RMM_DEBUG_LOG \
    "RMM's debug log; give the CSV that rmm.enable_logging() or logging_resource_adaptor writes"
#define OOM_MESSAGE \
    "the message of an out-of-memory; it does not tell who held the memory: " SNAPSHOT

#define BEGINS(text) text, sizeof(text) - 1

static const struct kind kinds[] = {
    {BEGINS("version https://git-lfs"), NULL, NULL,
     "a pointer of Git LFS, and not the file itself; git lfs pull fetches it"},
    {BEGINS("SQLite format 3"), NULL, NULL,
     "an SQLite database, as Nsight Systems exports; it holds no allocations of PyTorch: " SNAPSHOT},
    {BEGINS("memray"), NULL, NULL,
     "memray's recording of host memory; for device memory " SNAPSHOT},
    {BEGINS("PK\x03\x04"), NULL, NULL,
     "an archive, as torch.save() writes; it holds tensors and no history: " SNAPSHOT},
    {BEGINS("\x80\x02\x8a\nl\xfc\x9c"), NULL, NULL,
     "a file of torch.save(); it holds tensors and no history: " SNAPSHOT},
    {BEGINS("["), "RMM LOG BEGIN", NULL, RMM_DEBUG_LOG},
    {BEGINS("[ "), "][info", NULL, RMM_DEBUG_LOG},
    {BEGINS("[[1"), NULL, NULL, TIMELINE},  /* times since 1970 */
    {BEGINS("[[-1"), NULL, NULL, TIMELINE}, /* the raw form: memory from before the recording */
    {BEGINS("["), "\"total_size\"", "\"segment_type\"", "memory_snapshot() as JSON; " SNAPSHOT},
    {BEGINS("{"), "\"total_size\"", "\"device_traces\"", "a snapshot as JSON; " SNAPSHOT},
    {BEGINS("{\"fallow_rank\":"), NULL, NULL,
     "no trace but records of traces, which fallow report --json-lines wrote; fallow report merge "
     "reads them"},
    {BEGINS("["), NULL, NULL, NULL}, /* the readers accept other JSON */
    {BEGINS("{"), NULL, NULL, NULL},
    {BEGINS("<"), "MemoryViz", NULL, "the page of MemoryViz; " SNAPSHOT},
    {BEGINS("<"), "Memory Timeline", NULL, TIMELINE},
    {BEGINS("<"), NULL, NULL, "a page or another XML document; " SNAPSHOT},
    {BEGINS(""), "out of memory. Tried to allocate", NULL, OOM_MESSAGE},
    {BEGINS(""), "OutOfMemoryError", NULL, OOM_MESSAGE},
};

static bool has(const struct flw_input *input, const char *text)
{
    return text == NULL ||
           memmem(input->at, (size_t)(input->end - input->at), text, strlen(text)) != NULL;
}

const char *flw_mistaken_tell(struct flw_input *input)
{
    flw_input_fill(input, FLW_INPUT_FILL_BYTES);
    size_t bytes = (size_t)(input->end - input->at);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *kind = &kinds[i];
        if (bytes >= kind->begin_bytes && memcmp(input->at, kind->begin, kind->begin_bytes) == 0 &&
            has(input, kind->has) && has(input, kind->has_too)) {
            return kind->message;
        }
    }
    return NULL;
}
