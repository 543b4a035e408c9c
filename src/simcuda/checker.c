/* SPDX-License-Identifier: Apache-2.0 */
#include "simcuda/check.h"
CUresult flw_check_access(struct flw_stream *stream, const char *what, uint64_t sequence,
                          const struct flw_order_clock *clock, const struct flw_sim_range *range)
{
    (void)stream;
    (void)what;
    (void)sequence;
    (void)clock;
    (void)range;
    return CUDA_SUCCESS;
}
void flw_check_takes_away(uint64_t begin, uint64_t end, const char *by)
{
    (void)begin;
    (void)end;
    (void)by;
}
void flw_check_forget(uint64_t begin, uint64_t end)
{
    (void)begin;
    (void)end;
}
void flw_check_finish(void)
{
}
void flw_check_violation(const char *format, ...)
{
    (void)format;
    flw_world.violation_count++;
}
void flw_check_describe(uint64_t address, char *text, size_t bytes)
{
    (void)address;
    if (bytes)
        text[0] = 0;
}
