/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page's order: what it says first, which picture stands where, and the words that explain
 * it. A picture is picture.h's, a table page_table.c's.
 */
#include "report/page.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "report/page_script.h"
#include "report/page_style.h"
#include "report/page_table.h"
#include "report/picture.h"
#include "trace/trace/trace.h"

#include "common/figures.h"

#define HEAP_POLICIES 2  /* whose heaps are drawn: each costs a quarter of a megabyte */
#define PHASE_NAMES   8  /* that are listed */
#define FRAMES        12 /* page.css has so many choices */

/* Where a picture is shown: over operations, or over time where the trace has times. */
static const char *const views[] = {
    [FLW_PICTURE_BY_OPS] = "<div class=by-ops>", [FLW_PICTURE_BY_TIME] = "<div class=by-time>"};

/* `width` is a class of page.css. */
static void begin_page(FILE *out, const char *title, const char *width)
{
    fputs("<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
          "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src "
          "'unsafe-inline'; img-src data:; script-src 'sha256-" flw_page_script_sha256 "'\">\n"
          "<link rel=icon href=\"data:,\">\n<title>",
          out);
    flw_svg_escape(out, title);
    fputs(" - fallow report</title>\n<style>\n", out);
    (void)fwrite(flw_page_style, 1, sizeof flw_page_style, out);
    fprintf(out, "</style></head><body class=%s>\n", width);
}

static bool end_page(FILE *out)
{
    fputs("</main><script>", out);
    (void)fwrite(flw_page_script, 1, sizeof flw_page_script, out);
    fputs("</script></body></html>\n", out);
    return fflush(out) == 0 && ferror(out) == 0;
}

static void write_header(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_trace *trace = sheet->trace;
    char number[FLW_SVG_NUMBER_BYTES];
    fputs("<header><h1>", out);
    flw_svg_escape(out, sheet->title);
    fputs("</h1><p class=lead>", out);
    flw_svg_escape(out, trace->format == NULL ? "trace" : trace->format);
    fprintf(out, ", %s event%s, ",
            flw_svg_format(number, FLW_SVG_COUNT, (double)trace->event_count),
            flw_plural(trace->event_count));
    fprintf(out, "%s allocation%s, %zu stream%s, ",
            flw_svg_format(number, FLW_SVG_COUNT, (double)trace->alloc_count),
            flw_plural(trace->alloc_count), trace->stream_count, flw_plural(trace->stream_count));
    fprintf(out, "%s alive at the start",
            flw_svg_format(number, FLW_SVG_COUNT, (double)trace->initial_count));
    fputs(sheet->is_state ? "; no history" : ". Replayed on ", out);
    flw_svg_escape(out, sheet->is_state ? "" : sheet->device_name);
    if (sheet->is_state) {
    } else if (sheet->lag_units == 0) {
        fputs(", without device work", out);
    } else {
        flw_svg_format(number, sheet->is_by_time ? FLW_SVG_NS : FLW_SVG_COUNT,
                       (double)sheet->lag_units);
        const char *events = sheet->lag_units == 1 ? " event" : " events";
        fprintf(out, ", work done %s%s later", number, sheet->is_by_time ? "" : events);
    }
    fputs(".</p>", out);
    flw_page_table_devices(sheet, out);
    fputs("<p class=verdict>", out);
    flw_svg_escape(out, sheet->verdict);
    fputs("</p><p class=advice>", out);
    flw_svg_escape(out, sheet->advice.text);
    fputs("</p></header>\n", out);
}

static void write_contents(FILE *out)
{
    static const char *const parts[][2] = {
        {"owners", "Memory over time"},  {"heap", "Addresses over time"},
        {"policies", "Policies"},        {"survivors", "Alive at the end"},
        {"requests", "Sizes and lives"}, {"words", "Words"}};
    fputs("<nav aria-label=contents>", out);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        fprintf(out, "<a href=\"#%s\">%s</a>\n", parts[i][0], parts[i][1]);
    }
    fputs("</nav>\n", out);
}

/* The radio buttons stand before <main>, whose parts they show: no script is needed. */
static void write_axis_choice(const struct flw_sheet *sheet, FILE *out)
{
    fputs("<input type=radio name=axis id=axis-ops checked> <label class=choice for=axis-ops>over "
          "operations</label>\n",
          out);
    if (sheet->has_times) {
        fputs("<input type=radio name=axis id=axis-time> <label class=choice for=axis-time>over "
              "time</label>\n",
              out);
    }
    fputs("<main>\n", out);
}

/* What could be had at best. */
static void write_floor(const struct flw_sheet *sheet, FILE *out)
{
    char number[FLW_SVG_NUMBER_BYTES];
    fprintf(out, "<p class=hint>No allocator can hold less than the %s of the bound. ",
            flw_svg_format(number, FLW_SVG_BYTES, (double)sheet->program->max_live_bytes));
    if (flw_plan_may_wait(sheet->program, sheet->lag_units)) {
        fprintf(out, "None that makes neither the host nor a stream wait can hold less than %s. ",
                flw_svg_format(number, FLW_SVG_BYTES, (double)sheet->without_wait_bytes));
    }
    if (sheet->packed_bytes == FLW_UNKNOWN) {
        fputs(
            "A planner that knows the whole program was stopped at its bound of work: the trace has too "
            "many blocks.</p>\n",
            out);
    } else {
        fprintf(out,
                "A planner that knew the whole program could place it in %s at fixed addresses "
                "(one packing, first fit by size; not the least).</p>\n",
                flw_svg_format(number, FLW_SVG_BYTES, (double)sheet->packed_bytes));
    }
}

static void write_pools(const struct flw_sheet *sheet, FILE *out)
{
    if (sheet->pools_note[0] != '\0') {
        fputs("<p class=hint>", out);
        flw_svg_escape(out, sheet->pools_note);
        fputs(
            ". The recording does not say when a graph was destroyed: what is kept apart stays so "
            "until the end.</p>\n",
            out);
    }
}

static void write_in_views(const struct flw_sheet *sheet,
                           void (*draw)(const struct flw_sheet *, enum flw_picture_time, FILE *),
                           FILE *out)
{
    for (unsigned time = 0; time <= sheet->has_times; time++) {
        fputs(views[time], out);
        draw(sheet, (enum flw_picture_time)time, out);
        fputs("</div>", out);
    }
}

static void write_policies(const struct flw_sheet *sheet, FILE *out)
{
    fputs("<section><h2 id=policies>What each policy would have held</h2>\n", out);
    write_in_views(sheet, flw_picture_overlay, out);
    fputs(
        "<h3>Policy by policy, on one scale</h3><p class=hint>The area is what the program had "
        "requested (the stronger colour: the least within a column), the line what the policy had "
        "reserved; the number is its peak.</p>\n",
        out);
    write_in_views(sheet, flw_picture_small_multiples, out);
    flw_page_table_policies(sheet, out);
    write_floor(sheet, out);
    write_pools(sheet, out);
    flw_page_table_more(sheet, out);
    fputs("<h3>Where it goes at the peak</h3>\n", out);
    flw_picture_waste(sheet, out);
    fputs("<h3>Memory against time</h3>\n", out);
    flw_picture_trade(sheet, out);
    fputs("<h3>Memory against waits</h3>\n", out);
    flw_picture_waits(sheet, out);
    fputs("<h3>Time of one operation</h3>\n", out);
    flw_picture_latency(sheet, out);
    fputs("</section>\n", out);
}

/* Who would have served it, and from which limit on. */
static void write_answers(const struct flw_sheet_oom *oom, FILE *out)
{
    char limit[FLW_SVG_NUMBER_BYTES];
    if (oom->answer_count == 0) {
        return;
    }
    fputs("<p>The program replayed up to that request, and then the request", out);
    if (oom->limit_bytes != FLW_UNKNOWN) {
        fprintf(out, ", with %s, %s",
                flw_svg_format(limit, FLW_SVG_BYTES, (double)oom->limit_bytes),
                oom->is_limit_given ? "the limit given" : "what was reserved or free then");
    }
    fputs(". All else on this page is of the program without it.</p>\n", out);
    flw_page_table_answers(oom, out);
    fprintf(out, "%s\n",
            oom->is_searched
                ? ""
                : "<p class=hint>The program is too long to look for the smallest limits.</p>");
}

/* The recording's own. */
static void write_oom(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_sheet_oom *oom = &sheet->oom;
    char event[FLW_SVG_NUMBER_BYTES], bytes[FLW_SVG_NUMBER_BYTES];
    if (oom->count == 0) {
        return;
    }
    fprintf(out, "<p class=card><b>The recording</b> ran out of memory at event %s: ",
            flw_svg_format(event, FLW_SVG_COUNT, (double)oom->event));
    flw_svg_escape(out, oom->owner[0] != '\0' ? oom->owner : "code that is not known");
    fprintf(out, " asked for %s", flw_svg_format(bytes, FLW_SVG_BYTES, (double)oom->asked_bytes));
    fprintf(out, " beside %s that were in use",
            flw_svg_format(bytes, FLW_SVG_BYTES, (double)oom->live_bytes));
    if (oom->free_bytes != FLW_UNKNOWN) {
        fprintf(out, "; the device had %s free",
                flw_svg_format(bytes, FLW_SVG_BYTES, (double)oom->free_bytes));
    }
    if (oom->pending_count != 0) {
        fprintf(out, "; %s in %s block%s were freed and waited for other streams (record_stream)",
                flw_svg_format(bytes, FLW_SVG_BYTES, (double)oom->pending_bytes),
                flw_svg_format(event, FLW_SVG_COUNT, (double)oom->pending_count),
                flw_plural(oom->pending_count));
    }
    if (oom->idle_bytes != FLW_UNKNOWN) {
        fprintf(out, "; %s were reserved and idle",
                flw_svg_format(bytes, FLW_SVG_BYTES, (double)oom->idle_bytes));
    }
    if (oom->largest_hole_bytes != FLW_UNKNOWN) {
        fprintf(out, "; the largest hole had %s",
                flw_svg_format(bytes, FLW_SVG_BYTES, (double)oom->largest_hole_bytes));
    }
    fputs(".</p>\n", out);
    if (sheet->category_count[FLW_SHEET_BY_OWNER] != 0) {
        flw_page_table_oom(sheet, out);
    }
    write_answers(oom, out);
}

static void write_failures(const struct flw_sheet *sheet, FILE *out)
{
    char size[FLW_SVG_NUMBER_BYTES], hole[FLW_SVG_NUMBER_BYTES], op[FLW_SVG_NUMBER_BYTES];
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        if (policy->first_failure_op == FLW_UNKNOWN) {
            continue;
        }
        char asked[FLW_SVG_NUMBER_BYTES + 8];
        snprintf(asked, sizeof asked, "%s were",
                 flw_svg_format(size, FLW_SVG_BYTES, (double)policy->first_failure_bytes));
        fputs("<p class=card><b>", out);
        flw_svg_escape(out, policy->label);
        fprintf(out, "</b> ran out of memory first at operation %s: %s asked",
                flw_svg_format(op, FLW_SVG_COUNT, (double)policy->first_failure_op),
                policy->first_failure_bytes == FLW_UNKNOWN ? "it is not known how much was"
                                                           : asked);
        if (policy->first_failure_largest_hole_bytes != FLW_UNKNOWN) {
            fprintf(out, ", the largest hole was %s",
                    flw_svg_format(hole, FLW_SVG_BYTES,
                                   (double)policy->first_failure_largest_hole_bytes));
        }
        if (policy->first_failure_hole_bytes != FLW_UNKNOWN) {
            fprintf(out, " of %s free in all",
                    flw_svg_format(hole, FLW_SVG_BYTES, (double)policy->first_failure_hole_bytes));
        }
        fprintf(out, "; %" PRIu64 " request%s failed in all.</p>\n", policy->result->failure_count,
                flw_plural(policy->result->failure_count));
    }
}

static bool is_named_before(const struct flw_sheet *sheet, size_t mark)
{
    size_t i = 0;
    while (i < mark && strcmp(sheet->marks[i].name, sheet->marks[mark].name) != 0) {
        i++;
    }
    return i < mark;
}

static void write_phases(const struct flw_sheet *sheet, FILE *out)
{
    size_t count = 0;
    for (size_t i = 0; i < sheet->mark_count; i++) {
        if (is_named_before(sheet, i)) {
            continue;
        }
        if (count < PHASE_NAMES) {
            fputs(count == 0 ? "<p class=hint>The rail above: phases that the recording names, "
                             : ", ",
                  out);
            flw_svg_escape(out, sheet->marks[i].name);
        }
        count++;
    }
    if (count > PHASE_NAMES) {
        fprintf(out, " and %zu more", count - PHASE_NAMES);
    }
    fputs(count == 0 ? "" : ".</p>\n", out);
}

/* A row of radio buttons; what they choose follows as so many <div class=option>. */
static void write_pick(FILE *out, const char *group, size_t i, const char *name)
{
    fprintf(out,
            "<input type=radio class=pick name=\"%s\" id=\"%s-%zu\"%s> <label class=choice "
            "for=\"%s-%zu\">",
            group, group, i, i == 0 ? " checked" : "", group, i);
    flw_svg_escape(out, name);
    fputs("</label>\n", out);
}

static void write_rule(const struct flw_sheet *sheet, FILE *out)
{
    fputs("<p class=hint>Owner: ", out);
    flw_svg_escape(out, sheet->owner_rule == NULL ? "not known" : sheet->owner_rule);
    fputs(".</p>", out);
}

/* The leak list. */
static void write_survivors(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_sheet_holding *holding = &sheet->holdings[FLW_SHEET_SURVIVORS];
    char bytes[FLW_SVG_NUMBER_BYTES], count[FLW_SVG_NUMBER_BYTES];
    fputs("<section><h2 id=survivors>What is alive at the end</h2>\n", out);
    if (holding->count == 0) {
        fputs("<p class=none>Nothing that was not alive at the start.</p></section>\n", out);
        return;
    }
    fprintf(out,
            "<p class=hint>%s in %s blocks that were not there at the start: what is kept on "
            "purpose, and what leaks. A leak is left behind by every step.</p>\n",
            flw_svg_format(bytes, FLW_SVG_BYTES, (double)holding->bytes),
            flw_svg_format(count, FLW_SVG_COUNT, (double)holding->count));
    write_rule(sheet, out);
    flw_page_table_survivors(sheet, out);
    fputs("</section>\n", out);
}

/* What page.js fills and shows; without scripts it stays hidden. */
static void write_moment(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_sheet_policy *policy = flw_picture_find_known(sheet);
    char number[FLW_SVG_NUMBER_BYTES];
    if (policy == NULL) {
        return;
    }
    uint64_t failed_op = sheet->oom.op - (sheet->oom.op != 0); /* the heap after the previous op */
    uint64_t op = sheet->oom.count != 0 ? failed_op : policy->peak_requested_op;
    fprintf(
        out,
        "<div id=moment data-ops=%" PRIu64 " data-op=%" PRIu64
        " hidden><h3>At one moment</h3><p class=hint>Click into a picture over operations, or "
        "move: arrow keys walk one by one. Among blocks at their addresses that chooses one of them, "
        "arrow up and down the next. Drag over a part of a picture to zoom into it, or press + and "
        "-; 0 shows all again.</p>\n<input type=range min=0 max=%" PRIu64
        " aria-label=\"operation\"><p><output></output></p>\n",
        sheet->op_count, op == FLW_UNKNOWN ? 0 : op, flw_max(sheet->op_count, 1) - 1);
    bool has_all = flw_picture_write_moments(sheet, out);
    fputs(
        "<div class=icicle></div><p class=hint>Stacks, callers above: each as wide as what it holds; "
        "click one to fill the width, Escape goes back.",
        out);
    if (!has_all) {
        fprintf(out, " Of all blocks the %s that weigh most by size and life are known here.",
                flw_svg_format(number, FLW_SVG_COUNT, FLW_PICTURE_LISTED));
    }
    fputs("</p><table class=cards><thead><tr><th scope=col>block</th><th scope=col>size</th><th "
          "scope=col>allocated at operation</th><th scope=col>freed at</th><th scope=col>life</th>"
          "<th scope=col>stream</th></tr></thead><tbody></tbody></table></div>\n"
          "<div id=block role=status hidden></div>\n",
          out);
}

/* What says most of whose it is comes first. */
static void write_owners(const struct flw_sheet *sheet, FILE *out)
{
    static const struct {
        enum flw_sheet_kind kind;
        const char *name;
    } kinds[] = {{FLW_SHEET_BY_OWNER, "by code"},
                 {FLW_SHEET_BY_TAG, "by tag"},
                 {FLW_SHEET_BY_POOL, "by pool"},
                 {FLW_SHEET_BY_SIZE, "by size"},
                 {FLW_SHEET_BY_STREAM, "by stream"}};
    fputs("<section><h2 id=owners>Memory over time: who holds it</h2>\n", out);
    size_t shown[FLW_SHEET_KIND_COUNT], count = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (sheet->category_count[kinds[i].kind] != 0) {
            write_pick(out, "owner", count, kinds[i].name);
            shown[count++] = kinds[i].kind;
        }
    }
    for (size_t i = 0; i < count; i++) {
        enum flw_sheet_kind kind = (enum flw_sheet_kind)shown[i];
        fputs("<div class=option>", out);
        if (kind == FLW_SHEET_BY_OWNER) {
            write_rule(sheet, out);
        }
        for (unsigned time = 0; time <= sheet->has_times; time++) {
            fputs(views[time], out);
            flw_picture_categories(sheet, kind, (enum flw_picture_time)time, out);
            fputs("</div>", out);
        }
        flw_page_table_owners(sheet, kind, out);
        fputs("</div>\n", out);
    }
    write_phases(sheet, out);
    write_moment(sheet, out);
    fputs("</section>\n", out);
}

static void write_frames(const struct flw_sheet_policy *policy, size_t place, FILE *out)
{
    char group[32];
    size_t count = flw_min(policy->frame_count, FRAMES);
    snprintf(group, sizeof group, "frame-%zu", place);
    fputs("<h4>The heap at one moment</h4><div>\n", out);
    for (size_t i = 0; i < count; i++) {
        write_pick(out, group, i, policy->frames[i].name);
    }
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet_frame *frame = &policy->frames[i];
        char op[FLW_SVG_NUMBER_BYTES], a[FLW_SVG_NUMBER_BYTES], b[FLW_SVG_NUMBER_BYTES];
        char hole[FLW_SVG_NUMBER_BYTES];
        fprintf(out,
                "<div class=option><p class=hint>Operation %s: %s requested, %s reserved, "
                "%" PRIu64 " hole%s, the largest %s.</p>",
                flw_svg_format(op, FLW_SVG_COUNT, (double)frame->op),
                flw_svg_format(a, FLW_SVG_BYTES, (double)frame->requested_bytes),
                flw_svg_format(b, FLW_SVG_BYTES, (double)frame->reserved_bytes), frame->hole_count,
                flw_plural(frame->hole_count),
                flw_svg_format(hole, FLW_SVG_BYTES, (double)frame->largest_hole_bytes));
        flw_picture_frame(frame, out);
        fputs("</div>\n", out);
    }
    fputs(count == 0 ? "<p class=none>This policy's heap is not known.</p></div>\n" : "</div>\n",
          out);
}

static bool has_heap(const struct flw_sheet_policy *policy)
{
    return policy->frame_count != 0 || policy->rectangle_count != 0;
}

/* The first policy, and what it is compared with: what really happened, else PyTorch's model, else
 * the next. Returns how many. */
static size_t choose_heaps(const struct flw_sheet *sheet, size_t shown[HEAP_POLICIES])
{
    static const char *const rivals[] = {"recorded", "pytorch", NULL};
    size_t count = 0;
    for (size_t i = 0; i < sheet->policy_count && count == 0; i++) {
        if (has_heap(&sheet->policies[i])) {
            shown[count++] = i;
        }
    }
    for (size_t r = 0; r < sizeof rivals / sizeof *rivals && count == 1; r++) {
        for (size_t i = shown[0] + 1; i < sheet->policy_count && count == 1; i++) {
            const char *name = sheet->policies[i].result->policy->name;
            if (has_heap(&sheet->policies[i]) &&
                (rivals[r] == NULL || strcmp(name, rivals[r]) == 0)) {
                shown[count++] = i;
            }
        }
    }
    return count;
}

static void write_heaps(const struct flw_sheet *sheet, FILE *out)
{
    size_t shown[HEAP_POLICIES];
    size_t count = choose_heaps(sheet, shown);
    fputs("<section><h2 id=heap>Addresses over time: inside the heap</h2>\n", out);
    if (count == 0) {
        fputs("<p class=none>No policy's addresses are known.</p>\n", out);
    }
    for (size_t i = 0; i < count; i++) {
        write_pick(out, "heap", i, sheet->policies[shown[i]].label);
    }
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[shown[i]];
        fputs("<div class=option><h3>", out);
        flw_svg_escape(out, policy->label);
        fputs("</h3>", out);
        fputs("<h4>Blocks at their addresses</h4>", out);
        flw_picture_strip(sheet, policy, out);
        write_frames(policy, i, out);
        fputs("<h4>Holes over time</h4>", out);
        flw_picture_holes(sheet, policy, out);
        flw_picture_shades(out, "bytes in holes of that size");
        fputs("<p class=hint>The line is the largest request of the moment: what lies below it can "
              "not serve it.</p>\n",
              out);
        fputs("</div>\n", out);
    }
    fputs("</section>\n", out);
}

static void write_requests(const struct flw_sheet *sheet, FILE *out)
{
    char number[FLW_SVG_NUMBER_BYTES];
    const struct flw_sheet_policy *policy = flw_picture_find_known(sheet);
    fputs("<section><h2 id=requests>Sizes and lives: what the program asks for</h2>\n", out);
    fprintf(out, "<p>%s distinct sizes; ",
            flw_svg_format(number, FLW_SVG_COUNT, (double)sheet->distinct_size_count));
    fprintf(out, "%s blocks are freed by the very next operation.</p>\n",
            flw_svg_format(number, FLW_SVG_COUNT, (double)sheet->temporary_count));
    if (policy != NULL) {
        fputs("<h3>The heaviest blocks</h3>", out);
        flw_picture_active(sheet, policy, out);
    }
    fputs("<h3>Sizes</h3>", out);
    flw_picture_sizes(sheet, out);
    fputs("<h3>Lifetimes</h3>", out);
    flw_picture_lifetimes(sheet, out);
    flw_picture_shades(out, "blocks");
    fputs(
        "<p class=hint>Above: how many blocks lived so long. Below: of each size. Blocks that were "
        "never freed are left out.</p>\n",
        out);
    fputs("</section>\n", out);
}

/* Write the page of a heap without a history: no timeline and no other policies. */
static void write_state(const struct flw_sheet *sheet, FILE *out)
{
    fputs("<main><section><h2 id=owners>Who holds it</h2>\n", out);
    write_rule(sheet, out);
    flw_page_table_state(sheet, out);
    fputs("</section>\n<section><h2 id=heap>Inside the heap</h2>\n", out);
    if (sheet->policy_count != 0) {
        write_frames(&sheet->policies[0], 0, out);
    }
    fputs("</section>\n", out);
}

bool flw_page_write(const struct flw_sheet *sheet, FILE *out)
{
    begin_page(out, sheet->title, "column");
    write_header(sheet, out);
    if (sheet->is_state) {
        write_state(sheet, out);
        flw_page_table_words(out);
        return end_page(out);
    }
    write_contents(out);
    write_axis_choice(sheet, out);
    write_oom(sheet, out);
    write_failures(sheet, out);
    write_owners(sheet, out);
    write_heaps(sheet, out);
    write_policies(sheet, out);
    write_survivors(sheet, out);
    write_requests(sheet, out);
    flw_page_table_words(out);
    return end_page(out);
}

/* Line by line: whatever else is no letter becomes one. */
static void write_job(char *job, FILE *out)
{
    fputs("<section><h2 id=job>The job</h2><pre>", out);
    for (char *end; (end = strchr(job, '\n')) != NULL; job = end + 1) {
        *end = '\0';
        flw_svg_escape(out, job);
        fputc('\n', out);
    }
    flw_svg_escape(out, job);
    fputs("</pre></section>\n", out);
}

bool flw_page_write_landing(const struct flw_sheet *sheets, size_t count, const char *const *links,
                            char *job, FILE *out)
{
    begin_page(out, "traces", "wide");
    fputs(
        "<h1>Traces</h1><main>\n<p class=lead>Peaks in GiB, a row a trace, a column a policy: what it had "
        "reserved, and below that as a multiple of what was requested. Marked: the highest multiple of all.</p>\n",
        out);
    if (job != NULL) {
        write_job(job, out);
    }
    flw_page_table_landing(sheets, count, links, out);
    fputs("<p class=legend>held: ", out);
    flw_picture_legend(out, "requested", "requested", NULL);
    flw_picture_legend(out, "c7", "more in the policy that needs least", NULL);
    flw_picture_legend(out, "loss", "what that policy saves", NULL);
    fputs("</p>\n", out);
    flw_page_table_words(out);
    return end_page(out);
}
