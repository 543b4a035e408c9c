/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of merged audit pages: sites of several processes, order, symbols, upper bounds, and
 * damaged files. */
#include "support/test.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "audit/findings.h"
#include "common/symbols.h"

static struct flw_findings findings;
static struct flw_auditpage *page;

/* A page with a module and one site. */
static void make_page(uint64_t id, const char *module, uint64_t offset, uint64_t bytes)
{
    memset((void *)page, 0, sizeof *page);
    page->magic = FLW_AUDIT_MAGIC;
    page->page_bytes = sizeof *page;
    struct flw_audit_site site = {.id = id,
                                  .fill_count = 1,
                                  .bytes = bytes,
                                  .frame_count = 1,
                                  .frames = {{.offset = offset}},
                                  .call = "cuMemsetD8_v2"};
    site.frames[0].module = flw_auditpage_module(page, module);
    assert_non_null(flw_auditpage_site(page, &site));
    page->counts.fills = page->counts.candidates = 1;
    assert_true(flw_auditpage_is_valid(page));
}

static char *print(void (*how)(FILE *, struct flw_findings *))
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    assert_non_null(memory);
    findings.bandwidth_gbs = 1000;
    findings.poison = 0xff;
    how(memory, &findings);
    fclose(memory);
    return text;
}

TEST(pages_of_one_site_are_added_and_the_dearest_comes_first)
{
    make_page(7, "/bin/one", 0x10, 100);
    flw_findings_add(&findings, page);
    make_page(7, "/bin/one", 0x10, 50);
    flw_findings_add(&findings, page);
    make_page(8, "/bin/two", 0x20, 4000);
    flw_findings_add(&findings, page);
    flw_findings_sort(&findings);
    assert_int_equal(findings.process_count, 3);
    assert_int_equal(findings.site_count, 2);
    assert_int_equal(findings.sites[0].site.id, 8);
    assert_int_equal(findings.sites[1].site.fill_count, 2);
    assert_int_equal(findings.sites[1].site.bytes, 150);
    assert_int_equal(findings.counts.fills, 3);
    assert_string_equal(flw_findings_module(&findings, &findings.sites[0].site.frames[0]), "two");
    assert_non_null(flw_findings_site(&findings, 7));
    assert_null(flw_findings_site(&findings, 9));
    flw_findings_finish(&findings);
}

TEST(functions_are_named_from_the_file)
{
    Dl_info info;
    struct link_map *map = NULL;
    char own[512];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(length > 0);
    own[length] = '\0';
    assert_true(dladdr1((void *)(uintptr_t)functions_are_named_from_the_file, &info, (void **)&map,
                        RTLD_DL_LINKMAP) != 0);
    uint64_t begin = (uintptr_t)functions_are_named_from_the_file - map->l_addr;
    uint64_t offset = 0;
    struct flw_symbols *symbols = flw_symbols_open(own);
    assert_non_null(symbols);
    assert_string_equal(flw_symbols_find(symbols, begin, &offset), __func__);
    assert_int_equal(offset, 0);
    assert_string_equal(flw_symbols_find(symbols, begin + 9, &offset), __func__);
    assert_int_equal(offset, 9);
    assert_null(flw_symbols_find(symbols, 1, &offset));
    flw_symbols_close(symbols);
    assert_null(flw_symbols_open("/nonexistent"));
    assert_null(flw_symbols_open("/proc/self/status"));
    /* A return address is behind the call: the first byte of the next function names this one. */
    make_page(7, own, begin, 1);
    flw_findings_add(&findings, page);
    const char *before =
        flw_findings_function(&findings, &findings.sites[0].site.frames[0], &offset);
    assert_true(before == NULL || strcmp(before, __func__) != 0);
    flw_findings_finish(&findings);
}

/* Damage of any kind in a program's file must not cause a read beyond the end. */
TEST(a_damaged_program_file_gives_no_names_and_no_fault)
{
    uint64_t seed = flw_test_seed("findings symbols");
    char path[] = "/tmp/fallow_symbols_XXXXXX";
    int copy = mkstemp(path);
    FILE *own = fopen("/proc/self/exe", "rb");
    assert_non_null(own);
    static unsigned char bytes[8 << 20];
    size_t length = fread(bytes, 1, sizeof bytes, own);
    fclose(own);
    assert_true(copy >= 0 && length > 4096);
    for (int i = 0; i < 300; i++) {
        unsigned char kept[16];
        uint64_t offset;
        bool is_header = i % 3 != 0;
        size_t sections = 0;
        memcpy(&sections, bytes + 0x28, 8); /* e_shoff */
        size_t at = is_header ? flw_test_random(&seed) % 64
                              : sections + flw_test_random(&seed) % (length - sections - 16);
        memcpy(kept, bytes + at, sizeof kept);
        for (size_t k = 0; k < 1 + flw_test_random(&seed) % 8; k++) {
            bytes[at + k] = (unsigned char)flw_test_random(&seed);
        }
        size_t cut = i % 5 == 0 ? flw_test_random(&seed) % length : length;
        assert_int_equal(ftruncate(copy, 0), 0);
        assert_true(pwrite(copy, bytes, cut, 0) == (ssize_t)cut);
        struct flw_symbols *symbols = flw_symbols_open(path);
        if (symbols != NULL) {
            const char *name = flw_symbols_find(symbols, 0x2000, &offset);
            assert_true(name == NULL || strlen(name) < length);
        }
        flw_symbols_close(symbols);
        memcpy(bytes + at, kept, sizeof kept);
    }
    close(copy);
    unlink(path);
}

TEST(frames_of_the_runtime_are_not_where_a_fill_comes_from)
{
    make_page(7, "/usr/lib/libcudart.so.13", 0x10, 100);
    page->sites[0].frame_count = 3;
    page->sites[0].frames[1] = page->sites[0].frames[0];
    page->sites[0].frames[2] =
        (struct flw_audit_frame){.module = flw_auditpage_module(page, "/bin/own"), .offset = 0x30};
    flw_findings_add(&findings, page);
    flw_findings_sort(&findings);
    assert_int_equal(findings.sites[0].where, 2);
    char *text = print(flw_findings_print);
    assert_non_null(strstr(text, "from own+0x30"));
    assert_null(strstr(text, "libcudart"));
    free(text);
    text = print(flw_findings_print_json);
    assert_non_null(strstr(text, "libcudart")); /* kept, all the same */
    free(text);
    flw_findings_finish(&findings);
}

TEST(bounds_and_unread_values_are_marked)
{
    make_page(7, "/bin/own", 0x10, 2048);
    page->sites[0].unread_range_count = 1;
    page->sites[0].unread_value_count = 1;
    flw_findings_add(&findings, page);
    flw_findings_sort(&findings);
    char *text = print(flw_findings_print);
    assert_non_null(strstr(text, "<     2 KiB"));
    assert_non_null(strstr(text, "at most: the size of a fill could not be read"));
    assert_non_null(strstr(text, "the value of 1 could not be read: it may not be zero"));
    free(text);
    flw_findings_finish(&findings);
}

TEST(what_is_no_page_is_counted_and_not_read)
{
    char folder[] = "/tmp/fallow_findings_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/page.1", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("nothing", file);
    fclose(file);
    flw_findings_read(&findings, folder, "page");
    assert_int_equal(findings.process_count, 0);
    assert_int_equal(findings.unreadable_count, 1);
    unlink(path);
    flw_findings_read(&findings, "/nonexistent", "page");
    rmdir(folder);
    flw_findings_finish(&findings);
}

static int begin(void **state)
{
    page = malloc(sizeof *page);
    return page == NULL ? -1 : 0;
}

static int end(void **state)
{
    free(page);
    return 0;
}

FLW_TEST_MAIN(begin, end)
