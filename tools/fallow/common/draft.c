/* SPDX-License-Identifier: Apache-2.0 */
#include "common/draft.h"

#include <stdlib.h>

#include "trace/io/input.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/tool_host.h"

/* Write the text to the path, if any; the draft stays open. Returns false after an error. */
static bool write_text(struct flw_draft *draft, bool is_good, const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES] = "out of host memory";
    struct flw_output output;
    bool is_done = is_good && fflush(draft->file) == 0;
    if (is_done && path != NULL) {
        is_done = flw_output_begin(&output, path, message);
        if (is_done) {
            fwrite(draft->text, 1, draft->length, output.file);
            is_done = flw_output_commit(&output, message);
        }
    }
    return is_done || flw_complain("%s%s", draft->prefix, message);
}

int flw_draft_check(const char *path, char *const *operands, int count, const char *what)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    if (path == NULL || flw_output_is_stdout(path)) {
        return FLW_EXIT_OK;
    }
    for (int i = 0; i < count; i++) {
        if (flw_is_same_file(path, flw_input_place(operands[i]))) {
            return flw_refuse(FLW_EXIT_USAGE, "--json %s is %s; name another file", path, what);
        }
    }
    return flw_output_is_possible(path, message) ? FLW_EXIT_OK
                                                 : flw_refuse(FLW_EXIT_FAILED, "%s", message);
}

void flw_draft_begin(struct flw_draft *draft, const char *prefix)
{
    *draft = (struct flw_draft){.prefix = prefix};
    draft->file = open_memstream(&draft->text, &draft->length);
    if (draft->file == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
}

bool flw_draft_write(struct flw_draft *draft, const char *path)
{
    return write_text(draft, true, path);
}

bool flw_draft_end(struct flw_draft *draft, bool is_good, const char *path)
{
    bool is_done = write_text(draft, is_good, path);
    if (!is_done || path != NULL) {
        flw_draft_abandon(draft);
    } else {
        fclose(draft->file);
        draft->file = NULL;
    }
    return is_done;
}

void flw_draft_abandon(struct flw_draft *draft)
{
    if (draft->file != NULL) {
        fclose(draft->file);
    }
    free(draft->text);
    *draft = (struct flw_draft){0};
}
