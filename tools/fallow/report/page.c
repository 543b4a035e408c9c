/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: filling page.html: the title, the data, and the tables for browsers without scripts.
 */
#include "report/page.h"

#include <string.h>

#include "report/page_frame.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#include "common/figures.h"

#define OWNERS 20 /* rows of a table without scripts */

struct page {
    const struct flw_analysis
        *analyses; /* one, or those of several traces, which have pages of their own */
    size_t count;
    const char *const *links; /* NULL: the page of one trace */
    const char *others, *job; /* of one trace: data of other devices; of several: about their job */
    FILE *out;
};

static void write_escaped(FILE *out, const char *text)
{
    static const char specials[] = "&<>\"'";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    const unsigned char *c = (const unsigned char *)text, *end = c + strlen(text);
    for (size_t length; c < end; c += length == 0 ? 1 : length) {
        const char *special = strchr(specials, *c);
        length = *c < 0x20 || *c == 0x7f ? 0 : flw_json_utf8_length(c, end);
        if (special != NULL) {
            fputs(escapes[special - specials], out);
        } else if (length == 0) {
            fputc('?', out); /* a trace may contain any bytes */
        } else {
            (void)fwrite(c, 1, length, out);
        }
    }
}

/* ---- without scripts ---- */

static void write_row(FILE *out, const char *name, const char *first, const char *second)
{
    fputs("<tr><th>", out);
    write_escaped(out, name);
    fprintf(out, "</th><td>%s</td><td>%s</td></tr>\n", first, second);
}

static void write_owners(const struct flw_analysis *analysis, FILE *out)
{
    enum flw_analysis_moment moment = analysis->oom.count != 0 ? FLW_ANALYSIS_AT_OOM
                                      : analysis->is_state     ? FLW_ANALYSIS_AT_END
                                                               : FLW_ANALYSIS_AT_PEAK;
    static const char *const names[] = {[FLW_ANALYSIS_AT_OOM] = "out of memory",
                                        [FLW_ANALYSIS_AT_END] = "the end",
                                        [FLW_ANALYSIS_AT_PEAK] = "the peak"};
    const struct flw_analysis_holding *holding = &analysis->holdings[moment];
    struct flw_unit unit = flw_unit_choose(holding->bytes);
    fprintf(out,
            "<table><caption>Owners at %s</caption><tr><th>owner</th><th>%s</th><th>blocks</th>"
            "</tr>\n",
            names[moment], unit.name);
    for (size_t i = 0; i < holding->owner_count && i < OWNERS; i++) {
        const struct flw_analysis_owner *owner = &holding->owners[i];
        write_row(out, owner->name, FLW_BYTES(owner->bytes, unit), FLW_COUNT(owner->count));
    }
    fputs("</table>\n", out);
}

static void write_policies(const struct flw_analysis *analysis, FILE *out)
{
    struct flw_unit unit = flw_unit_choose(analysis->program->max_live_bytes);
    fprintf(out,
            "<table><caption>Policies: peaks in %s</caption><tr><th>policy</th><th>live</th>"
            "<th>reserved</th></tr>\n",
            unit.name);
    for (size_t i = 0; i < analysis->policy_count; i++) {
        const struct flw_run_result *result = analysis->policies[i].result;
        write_row(out, analysis->policies[i].label, FLW_BYTES(result->peak_requested_bytes, unit),
                  FLW_BYTES(result->statistics.peak_reserved_bytes, unit));
    }
    fputs("</table>\n", out);
}

static void write_tables(const struct page *page)
{
    const struct flw_analysis *analysis = page->analyses;
    if (page->links == NULL) {
        fputs("<p>The pictures need a script, which this browser does not run.</p>\n<p>",
              page->out);
        write_escaped(page->out, analysis->verdict);
        fputs("</p>\n<p>", page->out);
        write_escaped(page->out, analysis->advice.text);
        fputs("</p>\n", page->out);
        write_owners(analysis, page->out);
        write_policies(analysis, page->out);
        return;
    }
    for (size_t i = 0; i < page->count; i++) {
        bool has_link = page->links[i] != NULL;
        fputs(has_link ? "<p><a href=\"" : "<p>", page->out);
        write_escaped(page->out, has_link ? page->links[i] : "");
        fputs(has_link ? "\">" : "", page->out);
        write_escaped(page->out, analysis[i].title);
        fputs(has_link ? "</a></p>\n" : "</p>\n", page->out);
    }
}

/* ---- the data of several traces ---- */

/* Return the reserved peak of a policy; 0 if unknown. */
static uint64_t peak_of(const struct flw_analysis_policy *policy)
{
    bool is_known = policy != NULL && policy->result->has_run &&
                    policy->result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
    return is_known ? policy->result->statistics.peak_reserved_bytes : 0;
}

/* Return the length of the folder that all traces share. */
static size_t common_folder(const struct flw_analysis *analyses, size_t count)
{
    size_t length = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        const char *name = analyses[i].trace->source, *first = analyses[0].trace->source;
        size_t same = 0, folder = 0;
        for (; name != NULL && first != NULL && name[same] != '\0' && name[same] == first[same];
             same++) {
            folder = name[same] == '/' ? same + 1 : folder;
        }
        length = folder < length ? folder : length;
    }
    return length;
}

static void write_trace(const struct flw_analysis *analysis, const struct flw_analysis *widest,
                        const char *name, const char *link, struct flw_json_writer *out)
{
    uint64_t held = peak_of(analysis->reference), least = peak_of(analysis->best);
    uint64_t compared = held != 0 ? flw_analysis_held(analysis, analysis->reference) : 0;
    uint64_t saved = least != 0 && least < compared ? compared - least : 0;
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "name", name);
    flw_json_text(out, "link", link);
    FLW_JSON_NUMBERS(out, {"requested", analysis->trace->peak_requested_bytes}, {"held", held},
                     {"compared", compared}, {"saved", saved});
    flw_json_text(out, "best", analysis->best == NULL ? "" : analysis->best->label);
    flw_json_begin(out, "peaks", '[');
    for (size_t p = 0; p < widest->policy_count; p++) {
        const struct flw_analysis_policy *policy = flw_analysis_match(analysis, widest, p);
        flw_json_begin(out, NULL, '[');
        flw_json_number(out, NULL, peak_of(policy));
        flw_json_real(out, NULL, true, peak_of(policy) != 0 ? flw_analysis_ratio(policy) : 0);
        flw_json_end(out, ']');
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

static void write_traces(const struct page *page)
{
    const struct flw_analysis *widest = flw_analysis_widest(page->analyses, page->count);
    size_t folder = common_folder(page->analyses, page->count);
    struct flw_json_writer json = {.file = page->out, .is_utf8 = true, .is_in_page = true};
    flw_json_begin(&json, NULL, '{');
    flw_json_text(&json, "job", page->job);
    flw_json_begin(&json, "policies", '[');
    for (size_t p = 0; p < widest->policy_count; p++) {
        flw_json_text(&json, NULL, widest->policies[p].label);
    }
    flw_json_end(&json, ']');
    flw_json_begin(&json, "traces", '[');
    for (size_t i = 0; i < page->count; i++) {
        const struct flw_analysis *analysis = &page->analyses[i];
        bool has_title = analysis->trace->source == NULL || analysis->is_other;
        const char *name = has_title ? analysis->title : analysis->trace->source + folder;
        write_trace(analysis, widest, name, page->links[i], &json);
    }
    fputs("]}", page->out);
}

/* ---- the frame ---- */

static void write_lead(const struct flw_analysis *analysis, FILE *out)
{
    const struct flw_trace *trace = analysis->trace;
    char events[FLW_FIGURE_BYTES], allocs[FLW_FIGURE_BYTES], initial[FLW_FIGURE_BYTES];
    write_escaped(out, trace->format == NULL ? "trace" : trace->format);
    fprintf(out, ", %s event%s, %s allocation%s, %zu stream%s, %s alive at the start%s",
            flw_format_count(trace->event_count, events), flw_plural(trace->event_count),
            flw_format_count(trace->alloc_count, allocs), flw_plural(trace->alloc_count),
            trace->stream_count, flw_plural(trace->stream_count),
            flw_format_count(trace->initial_count, initial),
            analysis->is_state ? "; no history" : "");
}

/* Write the text that replaces {{name}} in page.html. */
static void write_field(const struct page *page, const char *name)
{
    bool has_several = page->links != NULL;
    if (strncmp(name, "title", 5) == 0) {
        write_escaped(page->out, has_several ? "Traces" : page->analyses->title);
    } else if (strncmp(name, "lead", 4) == 0 && !has_several) {
        write_lead(page->analyses, page->out);
    } else if (strncmp(name, "tables", 6) == 0) {
        write_tables(page);
    } else if (strncmp(name, "data", 4) == 0 && has_several) {
        write_traces(page);
    } else if (strncmp(name, "data", 4) == 0) {
        fputs("{\"analyses\":[", page->out);
        flw_page_write_data(page->analyses, page->out);
        fprintf(page->out, "%s]}", page->others);
    }
}

static bool write_page(const struct page *page)
{
    const char *at = (const char *)flw_page_frame;
    for (const char *mark; (mark = strstr(at, "{{")) != NULL; at = strstr(mark, "}}") + 2) {
        (void)fwrite(at, 1, (size_t)(mark - at), page->out);
        write_field(page, mark + 2);
    }
    fputs(at, page->out);
    return fflush(page->out) == 0 && ferror(page->out) == 0;
}

bool flw_page_write(const struct flw_analysis *analysis, const char *others, FILE *out)
{
    return write_page(&(struct page){.analyses = analysis, .others = others, .out = out});
}

bool flw_page_write_landing(const struct flw_analysis *analyses, size_t count,
                            const char *const *links, const char *job, FILE *out)
{
    return write_page(&(struct page){
        .analyses = analyses, .count = count, .links = links, .job = job, .out = out});
}
