/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the planner's results for MiniMalloc's eleven published problems, each of which fits in 1
 * MiB: valid, repeatable plans of at most 1.10 times that with the fixed effort, printed for each.
 * With a number of seconds it then searches that long and prints the result; it should be at most
 * 1.03, but that depends on the machine and is not required. Exits with 77 if the problems are
 * absent.
 *
 *   test_plan_minimalloc FOLDER [SECONDS] */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/plan.h"
#include "base/clock.h"

#define CAPACITY_BYTES (UINT64_C(1) << 20)
#define MOST_ITEMS     1024
#define SKIPPED        77

static const char problems[] = "ABCDEFGHIJK";

struct result {
    uint64_t bytes, ns;
};

/* Read lines of id,lower,upper,size after a heading; upper is exclusive. Returns 0 for a malformed
 * file. */
static size_t read_items(FILE *file, struct flw_plan_item *items)
{
    char line[256];
    size_t count = 0;
    if (fgets(line, sizeof(line), file) == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        uint32_t lower, upper;
        uint64_t bytes;
        if (count == MOST_ITEMS ||
            sscanf(line, "%*u,%" SCNu32 ",%" SCNu32 ",%" SCNu64, &lower, &upper, &bytes) != 3 ||
            upper <= lower || bytes == 0) {
            return 0;
        }
        items[count++] = (struct flw_plan_item){bytes, 1, lower, upper - 1, UINT64_MAX};
    }
    return count;
}

static bool place(struct flw_plan_item *items, size_t count, uint64_t effort_ns,
                  struct result *result)
{
    uint64_t proven_bytes;
    uint64_t begin_ns = flw_clock_fine_ns();
    if (!flw_plan_place(items, count, effort_ns, &result->bytes)) {
        printf("out of memory\n");
        return false;
    }
    result->ns = flw_clock_fine_ns() - begin_ns;
    if (!flw_plan_is_valid(items, count, &proven_bytes) || proven_bytes != result->bytes) {
        printf("not a plan of %" PRIu64 " bytes\n", result->bytes);
        return false;
    }
    return true;
}

static double ratio(struct result result)
{
    return (double)result.bytes / (double)CAPACITY_BYTES;
}

static bool check(char name, struct flw_plan_item *items, size_t count, uint64_t effort_ns)
{
    static struct flw_plan_item again[MOST_ITEMS];
    struct result fixed, repeated, longer;
    memcpy(again, items, count * sizeof(*items));
    if (!place(items, count, 0, &fixed) || !place(again, count, 0, &repeated)) {
        return false;
    }
    printf("%c   %5zu   %11" PRIu64 "   %8.4f   %7.3f", name, count,
           flw_plan_lower_bound(items, count), ratio(fixed), (double)fixed.ns / 1e9);
    bool is_same = memcmp(items, again, count * sizeof(*items)) == 0;
    bool is_small = fixed.bytes <= CAPACITY_BYTES / 100 * 110;
    if (effort_ns != 0) {
        if (!place(items, count, effort_ns, &longer)) {
            return false;
        }
        printf("   %8.4f   %7.3f", ratio(longer), (double)longer.ns / 1e9);
    }
    printf("%s%s\n", is_same ? "" : "   another plan the second time",
           is_small ? "" : "   above 1.10");
    fflush(stdout);
    return is_same && is_small;
}

int main(int argc, char **argv)
{
    static struct flw_plan_item items[MOST_ITEMS];
    char *end = NULL;
    unsigned long seconds = argc == 3 ? strtoul(argv[2], &end, 10) : 0;
    if (argc < 2 || argc > 3 || (argc == 3 && (*end != '\0' || seconds == 0 || seconds > 3600))) {
        fprintf(stderr, "usage: test_plan_minimalloc FOLDER [SECONDS, 1 to 3600]\n");
        return 2;
    }
    bool is_good = true;
    printf("set items   lower bound   at fixed effort, s%s\n",
           seconds != 0 ? "   searched longer, s" : "");
    for (const char *name = problems; *name != '\0'; name++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/minimalloc/%c.1048576.csv", argv[1], *name);
        FILE *file = fopen(path, "r");
        if (file == NULL) {
            printf("%s: %s\n", path, strerror(errno));
            return errno == ENOENT ? SKIPPED : 1;
        }
        size_t count = read_items(file, items);
        fclose(file);
        if (count == 0) {
            printf("%s: not a list of id,lower,upper,size\n", path);
            return 1;
        }
        is_good &= check(*name, items, count, seconds * UINT64_C(1000000000));
    }
    return is_good ? 0 : 1;
}
