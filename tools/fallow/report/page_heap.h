/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLW_TOOL_REPORT_PAGE_HEAP_H
#define FLW_TOOL_REPORT_PAGE_HEAP_H

#include "trace/io/jsonwriter.h"

struct flw_sheet;

/* Write the members heap, stacks, shapes, blocks, has_all_blocks, owners, frames and streams. */
void flw_page_write_heap(const struct flw_sheet *sheet, struct flw_json_writer *out);

#endif
