/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a driver answers about virtual memory management, and what the calls cost, idle and while the
 * device works: questions that only hardware can answer.
 *
 *   vmm_probe [--device N|sim] QUESTION
 *
 *     reserve   addresses: sizes up to 64 TiB, 2 TiB aligned to itself, two of them
 *     creates   handles with each kind of export, and for network cards: do they come, are they usable
 *     ipc       what others ask of an address: on a block of three handles, of one, and of cuMemAlloc
 *     life      create, map, access, unmap, release of a handle of 2, 16, 64, 256 MiB
 *     unmap     100 handles in one call and singly
 *     access    1,000 handles in one call and singly
 *     fill      140 GB in handles of 64 MiB, or what the device has free
 *
 * Prints an object of JSON a line, each written out as it is known: call, bytes, handles, result, and
 * microseconds of the samples. Timed calls are made twice: idle, and behind work of 200 ms on another
 * stream, where "waited" is true if the work was done when the call returned. On the simulated device the
 * times are a model's and the rows say so.
 *
 * Exit: 0 all asked, whatever was answered; 1 the program could not ask; 2 usage; 77 no such device, or one
 * without virtual memory management. Does not: use the library.
 */
#include "vmm_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*ask)(struct probe *probe);
    bool is_timed; /* repeated behind running work */
} questions[] = {{"reserve", ask_reserve, false}, {"creates", ask_creates, false},
                 {"ipc", ask_ipc, false},         {"life", ask_life, true},
                 {"unmap", ask_unmap, true},      {"access", ask_access, true},
                 {"fill", ask_fill, false}};
#define QUESTIONS (sizeof questions / sizeof *questions)

/* ---- timed calls ---- */

static bool is_working(struct probe *probe)
{
    CUresult state = probe->bed.cu->cuEventQuery(probe->end);
    if (state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY) {
        bed_must(&probe->bed, state, "cuEventQuery");
    }
    return state == CUDA_ERROR_NOT_READY;
}

void probe_begin(struct probe *probe)
{
    struct bed *bed = &probe->bed;
    if (probe->is_behind && !is_working(probe)) {
        bed_busy(bed, probe->stream, BEHIND_MS);
        MUST(cuEventRecord(probe->end, probe->stream));
    }
    probe->begun = bed_now_ns(bed);
}

bool probe_take(struct probe *probe, struct row *row, CUresult result)
{
    uint64_t ended = bed_now_ns(&probe->bed);
    if (result != CUDA_SUCCESS) {
        row->result = row->result != CUDA_SUCCESS ? row->result : result;
    } else {
        double us = (double)(ended - probe->begun) / 1000;
        if (row->call_count < MOST_SAMPLES) {
            row->us[row->call_count] = us;
        }
        row->call_count++;
        row->total_us += us;
    }
    row->has_waited |= probe->is_behind && !is_working(probe);
    return result == CUDA_SUCCESS;
}

void probe_rest(struct probe *probe)
{
    struct bed *bed = &probe->bed;
    MUST(cuStreamSynchronize(probe->stream));
}

static int compare(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static void print_head(struct probe *probe, const char *call, size_t bytes, CUresult result)
{
    printf(
        "{\"ask\":\"%s\",\"call\":\"%s\",\"bytes\":%zu,\"result\":%d,\"name\":\"%s\",\"simulated\":%s",
        probe->question, call, bytes, (int)result, bed_name(&probe->bed, result),
        probe->bed.is_sim ? "true" : "false");
}

void probe_print(struct probe *probe, const struct row *row)
{
    double sorted[MOST_SAMPLES];
    unsigned count = row->call_count < MOST_SAMPLES ? row->call_count : MOST_SAMPLES;
    if (count == 0 && row->result == CUDA_SUCCESS) {
        return;
    }
    memcpy(sorted, row->us, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    print_head(probe, row->call, row->bytes, row->result);
    printf(",\"handles\":%u,\"load\":\"%s\",\"calls\":%u", row->count,
           probe->is_behind ? "behind" : "idle", row->call_count);
    if (count > 0) {
        printf(",\"us_min\":%.2f,\"us_median\":%.2f,\"us_max\":%.2f,\"us_total\":%.2f", sorted[0],
               sorted[count / 2], sorted[count - 1], row->total_us);
    }
    printf(",\"waited\":%s}\n", row->has_waited ? "true" : "false");
    fflush(stdout);
}

void probe_say(struct probe *probe, const char *call, size_t bytes, CUresult result,
               const char *text)
{
    print_head(probe, call, bytes, result);
    printf("%s}\n", text);
    fflush(stdout);
}

/* ---- mapped stretches ---- */

/* Print a row for a call that was refused. True if it was not. */
static bool took(struct probe *probe, const char *call, size_t bytes, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        probe_say(probe, call, bytes, result, ",\"note\":\"not asked for want of it\"");
    }
    return result == CUDA_SUCCESS;
}

bool probe_reserve(struct probe *probe, CUdeviceptr *address, size_t bytes)
{
    return took(probe, "cuMemAddressReserve", bytes,
                probe->bed.cu->cuMemAddressReserve(address, bytes, 0, 0, 0));
}

void probe_unmap(struct probe *probe, struct stretch *stretch, bool is_mapped)
{
    const struct flw_driver *cu = probe->bed.cu;
    size_t bytes = stretch->bytes * stretch->count;
    bool good = true;
    for (unsigned i = 0; good && i < stretch->count; i++) {
        if (is_mapped && i < stretch->mapped_count) {
            good = took(probe, "cuMemUnmap", stretch->bytes,
                        cu->cuMemUnmap(stretch->address + i * stretch->bytes, stretch->bytes));
        }
        if (good && stretch->handles[i] != 0) {
            good =
                took(probe, "cuMemRelease", stretch->bytes, cu->cuMemRelease(stretch->handles[i]));
        }
    }
    if (good) {
        took(probe, "cuMemAddressFree", bytes, cu->cuMemAddressFree(stretch->address, bytes));
    }
    free(stretch->handles);
    free(stretch);
}

struct stretch *probe_map(struct probe *probe, size_t bytes, unsigned count, bool is_accessible)
{
    const struct flw_driver *cu = probe->bed.cu;
    struct stretch *stretch = calloc(1, sizeof *stretch);
    CUmemGenericAllocationHandle *handles = calloc(count, sizeof *handles);
    if (stretch == NULL || handles == NULL) {
        fprintf(stderr, "vmm_probe: no memory\n");
        exit(1);
    }
    *stretch = (struct stretch){.bytes = bytes, .count = count, .handles = handles};
    if (!probe_reserve(probe, &stretch->address, bytes * count)) {
        free(handles);
        free(stretch);
        return NULL;
    }
    bool good = true;
    for (unsigned i = 0; good && i < count; i++) {
        CUmemGenericAllocationHandle handle = 0;
        good = took(probe, "cuMemCreate", bytes,
                    cu->cuMemCreate(&handle, bytes, &probe->properties, 0));
        handles[i] = good ? handle : 0;
        good = good && took(probe, "cuMemMap", bytes,
                            cu->cuMemMap(stretch->address + i * bytes, bytes, 0, handle, 0));
        stretch->mapped_count += good;
    }
    if (good && is_accessible) {
        good = took(probe, "cuMemSetAccess", bytes * count,
                    cu->cuMemSetAccess(stretch->address, bytes * count, &probe->access, 1));
    }
    if (!good) {
        probe_unmap(probe, stretch, true);
        return NULL;
    }
    return stretch;
}

/* ---- the program ---- */

static bool open_probe(struct probe *probe)
{
    struct bed *bed = &probe->bed;
    int has_vmm = 0;
    MUST(cuDeviceGetAttribute(&has_vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                              bed->device));
    if (has_vmm == 0 || bed->cu->cuMemMap == NULL) {
        fprintf(stderr, "vmm_probe: the device has no virtual memory management\n");
        return false;
    }
    probe->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    probe->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    probe->properties.location.id = bed->device;
    probe->access.location = probe->properties.location;
    probe->access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cuStreamCreate(&probe->stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&probe->end, CU_EVENT_DISABLE_TIMING));
    bed_busy(bed, probe->stream, 1); /* loads the kernel */
    probe_rest(probe);
    return true;
}

static int find(const char *name)
{
    for (size_t i = 0; name != NULL && i < QUESTIONS; i++) {
        if (strcmp(questions[i].name, name) == 0) {
            return (int)i;
        }
    }
    fprintf(stderr,
            "vmm_probe: unknown argument '%s'; usage: vmm_probe [--device N|sim] reserve|creates|"
            "ipc|life|unmap|access|fill\n",
            name != NULL ? name : "");
    return -1;
}

int main(int argc, char **argv)
{
    static struct probe probe;
    const char *device = "0", *name = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else {
            name = argv[i];
        }
    }
    int chosen = find(name);
    if (chosen < 0) {
        return 2;
    }
    int code = bed_open(&probe.bed, device);
    if (code != 0) {
        return code;
    }
    if (!open_probe(&probe)) {
        return 77;
    }
    probe.question = questions[chosen].name;
    questions[chosen].ask(&probe);
    if (questions[chosen].is_timed) {
        probe.is_behind = true;
        questions[chosen].ask(&probe);
        probe_rest(&probe);
    }
    return 0;
}
