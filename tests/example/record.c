/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of include/fallow/README.md: record what a program allocates. The file is the
 * argument.
 */
#include <fallow/fallow.h>
#include <fallow/trace.h>

int main(int argc, char **argv)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_record_config file = {.struct_size = sizeof file,
                                 .path = argc > 1 ? argv[1] : "mine.ftrace"};
    fallow_pool *pool = NULL;
    fallow_recorder *recorder = NULL;
    void *block = NULL;
    int failed = fallow_pool_create(&config, &pool) ||
                 fallow_record_start(pool, &file, &recorder) || /* blocks of before are in it too */
                 fallow_record_phase_begin(recorder, "step 1") ||
                 fallow_alloc(pool, 64 << 20, NULL, &block) || fallow_free(pool, block, NULL) ||
                 fallow_record_phase_end(recorder, "step 1") || fallow_record_stop(recorder);
    fallow_pool_destroy(pool);
    return failed;
}
