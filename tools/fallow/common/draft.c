/* SPDX-License-Identifier: Apache-2.0 */
#include "common/draft.h"

#include <stdlib.h>

#include "common/command.h"
#include "common/textfile.h"

bool flw_draft_begin(struct flw_draft *draft, const char *prefix)
{
    *draft = (struct flw_draft){.prefix = prefix};
    draft->file = open_memstream(&draft->text, &draft->length);
    if (draft->file == NULL) {
        flw_complain("%sout of host memory", prefix);
    }
    return draft->file != NULL;
}

bool flw_draft_end(struct flw_draft *draft, bool is_good, const char *path)
{
    char message[FLW_TEXTFILE_MESSAGE_BYTES] = "out of host memory";
    bool is_whole = fclose(draft->file) == 0 && is_good;
    bool is_done =
        is_whole && (path == NULL || flw_textfile_write(path, draft->text, draft->length, message));
    if (!is_done) {
        flw_complain("%s%s", draft->prefix, message);
    }
    if (path != NULL || !is_done) {
        free(draft->text);
        draft->text = NULL;
    }
    return is_done;
}
