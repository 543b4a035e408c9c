/* SPDX-License-Identifier: Apache-2.0 */
#include "common/draft.h"

#include <stdlib.h>

#include "trace/io/input.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/tool_host.h"

/* False: the message names the file and what to do; the file is as it was before. */
static bool write_text(const char *path, const char *text, size_t length, char *message)
{
    struct flw_output output;
    bool is_begun = flw_output_begin(&output, path, message);
    if (is_begun) {
        fwrite(text, 1, length, output.file);
    }
    return is_begun && flw_output_commit(&output, message);
}

void flw_draft_begin(struct flw_draft *draft, const char *prefix)
{
    *draft = (struct flw_draft){.prefix = prefix};
    draft->file = open_memstream(&draft->text, &draft->length);
    if (draft->file == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
}

bool flw_draft_end(struct flw_draft *draft, bool is_good, const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES] = "out of host memory";
    bool is_whole = fclose(draft->file) == 0 && is_good;
    draft->file = NULL;
    bool is_done =
        is_whole && (path == NULL || write_text(path, draft->text, draft->length, message));
    if (!is_done) {
        flw_complain("%s%s", draft->prefix, message);
    }
    if (path != NULL || !is_done) {
        free(draft->text);
        draft->text = NULL;
    }
    return is_done;
}

bool flw_draft_write(struct flw_draft *draft, const char *path)
{
    char message[FLW_TRACE_MESSAGE_BYTES] = "out of host memory";
    bool is_done =
        fflush(draft->file) == 0 && write_text(path, draft->text, draft->length, message);
    if (!is_done) {
        flw_complain("%s%s", draft->prefix, message);
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
