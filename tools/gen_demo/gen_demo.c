/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the command that makes the demo trace of `fallow replay` again.
 * Usage: gen_demo FILE      ("-" = stdout)
 *        gen_demo - | xz -9e > tools/fallow/demo.ftext.xz
 */
#include <stdio.h>

#include "trace/formats/formats.h"
#include "trace/gen/serve.h"

int main(int argc, char **argv)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace;
    struct flw_serve_params params = flw_serve_demo();
    bool is_option =
        argc > 1 && argv[1][0] == '-' && argv[1][1] != '\0'; /* no file is called --help */
    if (argc != 2 || is_option) {
        fprintf(stderr, "usage: gen_demo FILE\n");
        return 2;
    }
    if (!flw_serve_generate(&params, &trace)) {
        fprintf(stderr, "gen_demo: no memory\n");
        return 1;
    }
    bool is_written = flw_trace_write_text(trace, argv[1], message);
    if (!is_written) {
        fprintf(stderr, "%s\n", message);
    }
    flw_trace_destroy(trace);
    return is_written ? 0 : 1;
}
