/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the ways to reach the hooks. Each runs a client twice, without and with the
 * preload: the outputs must be the same except for the objects that export functions.
 * Does not: test the wrappers. */
#include "support/emulator.h"
#include "support/test.h"

#include <string.h>
#include <unistd.h>

#include "child.h"
#include "preload/runpage.h"

#define OURS    "libfallow-preload.so"
#define DRIVERS "libcuda.so" /* with or without a version, as opened */

static struct child plain, hooked;
static char plain_words[CHILD_TEXT_BYTES], hooked_words[CHILD_TEXT_BYTES];

/* Preloads are paths with spaces between, or NULL; fallow is FALLOW's value, or NULL. */
static void run(struct child *child, const char *const *argv, const char *folder,
                const char *preloads, const char *fallow)
{
    char preload[4096], setting[4096], path[4096];
    const char *environment[5] = {path};
    unsigned count = 1;
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", folder);
    if (preloads != NULL) {
        snprintf(preload, sizeof preload, "LD_PRELOAD=%s", preloads);
        environment[count++] = preload;
    }
    if (fallow != NULL) {
        snprintf(setting, sizeof setting, "FALLOW=%s", fallow);
        environment[count++] = setting;
    }
    assert_true(child_run(child, argv, environment));
}

static void compare(void)
{
    child_without(plain.out, "from ", plain_words);
    child_without(hooked.out, "from ", hooked_words);
    assert_int_equal(hooked.status, plain.status);
    assert_string_equal(hooked_words, plain_words);
}

/* Run the client without and with the preload, with the same arguments. */
static void run_both(const char *const *argv, const char *folder)
{
    run(&plain, argv, folder, NULL, NULL);
    run(&hooked, argv, folder, PRELOAD, NULL);
    compare();
    assert_string_equal(plain.err, "");
}

/* Run the process to the end; return the flags in the page of `fallow run`. */
static unsigned run_on_a_page(const char *const *argv, const char *folder)
{
    char setting[64];
    static const uint64_t magic = FLW_RUNPAGE_MAGIC;
    int file = flw_sealed_file_make("page", sizeof(struct flw_runpage));
    assert_true(file >= 0 && write(file, &magic, sizeof magic) == (ssize_t)sizeof magic);
    snprintf(setting, sizeof setting, "state:/proc/%d/fd/%d", (int)getpid(), file);
    struct flw_runpage *page = flw_runpage_open(setting + strlen("state:"));
    assert_non_null(page);
    run(&hooked, argv, folder, PRELOAD, setting);
    close(file);
    assert_string_equal(hooked.err, ""); /* written to the page only */
    assert_int_equal(atomic_load(&page->place_count), 1);
    unsigned flags = atomic_load(&page->places[0].flags);
    munmap(page, sizeof *page);
    return flags;
}

static void assert_uses_no_driver(const char *const *argv, const char *folder)
{
    assert_string_equal(hooked.err, "");
    assert_int_equal(run_on_a_page(argv, folder), FLW_RUNPAGE_LOADED | FLW_RUNPAGE_ENDED);
}

static void assert_hooked(const char *name)
{
    char line[200];
    snprintf(line, sizeof line, "from %s " OURS "\n", name);
    assert_non_null(strstr(hooked.out, line));
    snprintf(line, sizeof line, "from %s " DRIVERS, name);
    assert_non_null(strstr(plain.out, line));
}

/* Check that we export every hooked name that clients use, and no other, and that the client
 * succeeded. */
static void assert_reached(void)
{
    assert_int_equal(plain.status, 0);
    assert_non_null(strstr(plain.out, "alloc 0\nfree 0\n"));
    assert_hooked("cuMemAlloc_v2");
    assert_hooked("cuMemFree_v2");
    assert_hooked("cuMemAllocAsync_ptsz");
    assert_hooked("cuMemFreeAsync_ptsz");
    assert_hooked("cuCtxSetCurrent");
    assert_non_null(strstr(hooked.out, "from cuInit " DRIVERS));
    assert_string_equal(hooked.err, "");
}

static void assert_not_reached(const char *reason)
{
    assert_null(strstr(hooked.out, OURS));
    assert_int_equal(child_count(hooked.err, "fallow: not reached: "), 1);
    if (strstr(hooked.err, reason) == NULL) {
        fail_msg("'%s' does not say '%s'", hooked.err, reason);
    }
}

TEST(a_linked_program_is_reached)
{
    run_both((const char *[]){LINKED, NULL}, DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuMemAlloc_v2");
    assert_hooked("cuMemFreeAsync_ptsz");
    assert_non_null(strstr(hooked.out, "free at exit 0\n"));
    assert_string_equal(hooked.err, "");
}

TEST(a_program_that_opens_it_by_name_is_reached)
{
    run_both((const char *[]){CLIENT, "name", NULL}, DRIVER_FOLDER);
    assert_reached();
}

TEST(a_program_that_opens_it_without_version_is_reached)
{
    run_both((const char *[]){CLIENT, "unversioned", NULL}, DRIVER_FOLDER);
    assert_reached();
}

TEST(a_program_that_opens_it_by_path_is_reached)
{
    run_both((const char *[]){CLIENT, "path", DRIVER_FOLDER "/libcuda.so", NULL}, "/nowhere");
    assert_reached();
}

TEST(a_program_that_looks_everywhere_is_reached)
{
    run_both((const char *[]){CLIENT, "default", NULL}, DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuMemAlloc_v2");
    assert_hooked("cuMemFree_v2");
}

TEST(a_program_that_looks_through_itself_is_reached)
{
    run_both((const char *[]){CLIENT, "main", NULL}, DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuMemAlloc_v2");
}

TEST(a_plug_in_is_reached_and_finds_its_own_symbols)
{
    run_both((const char *[]){CLIENT, "plugin", PLUGIN, "local", NULL}, DRIVER_FOLDER);
    assert_reached();
    assert_non_null(strstr(plain.out, "my own symbol 1\nthe next one 0\n"));
}

TEST(a_plug_in_that_looks_in_its_constructor_is_reached)
{
    run_both((const char *[]){CLIENT, "plugin", EARLY_PLUGIN, "local", NULL}, DRIVER_FOLDER);
    assert_reached();
}

TEST(a_deep_bound_plug_in_goes_past_us_and_is_reported)
{
    run_both((const char *[]){CLIENT, "plugin", PLUGIN, "deepbind", NULL}, DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_not_reached("RTLD_DEEPBIND");
}

TEST(a_namespace_of_its_own_goes_past_us_and_is_reported)
{
    const char *const argv[] = {CLIENT, "plugin", PLUGIN, "namespace", NULL};
    run_both(argv, DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_null(strstr(hooked.out, OURS));
    assert_string_equal(hooked.err, ""); /* the other namespace is invisible from here */
    assert_int_equal(run_on_a_page(argv, DRIVER_FOLDER),
                     FLW_RUNPAGE_LOADED | FLW_RUNPAGE_PASSED | FLW_RUNPAGE_ENDED);
}

TEST(python_is_reached)
{
    if (access(PYTHON, X_OK) != 0) {
        skip();
    }
    run_both((const char *[]){PYTHON, CTYPES_CLIENT, NULL}, DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuMemAlloc_v2");
    assert_non_null(strstr(hooked.out, "alloc 0\nfree 0\n"));
}

TEST(a_look_alike_of_the_runtime_is_reached)
{
    run_both((const char *[]){RUNTIME_LIKE, NULL}, DRIVER_FOLDER);
    assert_reached();
    assert_non_null(strstr(plain.out, "440 requests"));
    assert_non_null(strstr(plain.out, "by the old one 0\nthe same 1\n"));
    assert_hooked("cuGetProcAddress");
    assert_hooked("cuGetProcAddress_v2");
    assert_non_null(strstr(hooked.out, "two functions 1\n"));
}

TEST(a_driver_that_looks_itself_up_gets_its_own)
{
    run_both((const char *[]){REENTER, NULL}, REENTRANT_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuMemAlloc_v2");
    assert_non_null(strstr(hooked.out, "alloc 0\nthe driver's block 1\n"));
}

TEST(two_names_of_one_function_share_a_wrapper)
{
    run_both((const char *[]){REENTER, NULL}, REENTRANT_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuCtxDestroy");
    assert_non_null(strstr(hooked.out, "one function of two names 1\n"));
    assert_non_null(strstr(hooked.out, "destroy nothing 201\n"));
}

TEST(a_driver_with_two_addresses_for_one_is_hooked_at_both)
{
    run_both((const char *[]){REENTER, NULL}, APART_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_hooked("cuMemAlloc_v2");
    assert_non_null(strstr(hooked.out, "alloc 0\nthe driver's block 1\n"));
}

TEST(a_driver_that_lacks_what_we_need_is_left_alone)
{
    const char *const argv[] = {REENTER, NULL};
    run(&plain, argv, SCANT_FOLDER, NULL, NULL);
    run(&hooked, argv, SCANT_FOLDER, PRELOAD, NULL);
    assert_int_equal(plain.status, 0);
    assert_string_equal(hooked.out, plain.out);
    assert_int_equal(child_count(hooked.err, "fallow: the driver lacks cu"), 1);
    assert_int_equal(child_count(hooked.err, "\n"), 1);
}

TEST(threads_that_look_up_at_once_get_the_same)
{
    for (unsigned i = 0; i < 10; i++) {
        run_both((const char *[]){CLIENT, "threads", NULL}, DRIVER_FOLDER);
        assert_int_equal(plain.status, 0);
        assert_hooked("cuMemFree_v2");
    }
}

TEST(errors_of_the_loader_stay_the_programs)
{
    run_both((const char *[]){CLIENT, "error", NULL}, DRIVER_FOLDER);
    assert_non_null(strstr(plain.out, "after a success: no error\n"));
    assert_non_null(strstr(plain.out, "nobody_has_this"));
}

TEST(the_next_symbol_is_the_callers)
{
    run_both((const char *[]){CLIENT, "next", NULL}, DRIVER_FOLDER);
    assert_non_null(strstr(plain.out, "puts is the library's: 1\n"));
}

TEST(without_a_driver_none_is_found)
{
    const char *const argv[] = {CLIENT, "name", NULL};
    run_both(argv, "/nowhere");
    assert_int_equal(plain.status, 4);
    assert_uses_no_driver(argv, "/nowhere");
    run_both((const char *[]){CLIENT, "probe", NULL}, "/nowhere");
    assert_non_null(strstr(plain.out, "default 0\nan error 1\nprogram 0\nan error 1\nnext 0\n"));
}

TEST(launches_are_the_drivers_own_but_under_an_audit)
{
    run_both((const char *[]){CLIENT, "vain", NULL}, DRIVER_FOLDER);
    assert_non_null(strstr(hooked.out, "from cuLaunchKernel " DRIVERS));
    run(&hooked, (const char *[]){CLIENT, "vain", NULL}, DRIVER_FOLDER, PRELOAD,
        "mode:cache,audit:/nowhere/page");
    assert_non_null(strstr(hooked.out, "from cuLaunchKernel " OURS));
}

TEST(a_name_that_the_driver_lacks_is_not_found)
{
    run_both((const char *[]){CLIENT, "vain", NULL}, REENTRANT_FOLDER);
    assert_non_null(strstr(hooked.out, "known 1\nan error 0\nunknown 0\nan error 1\n"));
    assert_null(strstr(hooked.out, "unknown 1"));
}

TEST(a_program_without_cuda_loads_none)
{
    const char *const argv[] = {CLIENT, "none", NULL};
    run_both(argv, DRIVER_FOLDER);
    assert_string_equal(hooked.out, "libcuda is loaded: 0\n");
    assert_uses_no_driver(argv, DRIVER_FOLDER);
}

TEST(a_fork_before_and_after_use_is_as_without_us)
{
    run_both((const char *[]){CLIENT, "fork", "before", NULL}, DRIVER_FOLDER);
    assert_int_equal(child_count(plain.out, "alloc 0"), 2);
    run_both((const char *[]){CLIENT, "fork", "after", NULL}, DRIVER_FOLDER);
    assert_non_null(strstr(plain.out, "child\nalloc 3\n"));
}

TEST(a_child_without_the_environment_is_plain)
{
    run_both((const char *[]){CLIENT, "stripped", FLW_EMULATOR CLIENT, "name", NULL},
             DRIVER_FOLDER);
    assert_int_equal(plain.status, 0);
    assert_null(strstr(hooked.out, OURS));
    assert_string_equal(hooked.err, "");
}

/* The loader itself leaves us out. Needs root, and a file system that heeds the bit. */
TEST(a_setuid_program_is_plain)
{
    static const char copy[] = "preload_setuid_client";
    if (geteuid() != 0 ||
        system("cp '" CLIENT "' preload_setuid_client && chown 65534 preload_setuid_client && "
               "chmod 4755 preload_setuid_client") != 0) {
        skip();
    }
    const char *const argv[] = {copy, "path", DRIVER_FOLDER "/libcuda.so.1", NULL};
    run(&plain, argv, "/nowhere", NULL, NULL);
    run(&hooked, argv, "/nowhere", PRELOAD, NULL);
    unlink(copy);
    if (strstr(plain.out, "privileged 1\n") == NULL) {
        skip();
    }
    assert_string_equal(hooked.out, plain.out);
    assert_int_equal(hooked.status, plain.status);
    assert_string_equal(hooked.err, "");
}

TEST(a_wrong_setting_is_said_once_and_leaves_the_program_alone)
{
    static const struct {
        const char *setting, *line;
    } wrong[] = {{"colour:blue", "FALLOW has no key 'colour'"},
                 {"mode:fast", "'mode:fast': give off, trace"},
                 {"limit:much", "'limit:much': give bytes"}};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const argv[] = {CLIENT, "name", NULL};
        run(&plain, argv, DRIVER_FOLDER, NULL, NULL);
        run(&hooked, argv, DRIVER_FOLDER, PRELOAD, wrong[i].setting);
        assert_string_equal(hooked.out, plain.out); /* the objects too */
        assert_int_equal(hooked.status, 0);
        assert_int_equal(child_count(hooked.err, "\n"), 1);
        assert_non_null(strstr(hooked.err, wrong[i].line));
        assert_non_null(strstr(hooked.err, "runs without Fallow"));
    }
}

TEST(off_is_off)
{
    static const char *const settings[] = {"mode:off", "skip:preload_client", "only:another"};
    for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *const argv[] = {CLIENT, "name", NULL};
        run(&plain, argv, DRIVER_FOLDER, NULL, NULL);
        run(&hooked, argv, DRIVER_FOLDER, PRELOAD, settings[i]);
        assert_string_equal(hooked.out, plain.out);
        assert_string_equal(hooked.err, "");
    }
}

/* The driver refuses everything here, so trace and audit have nothing to report. */
TEST(a_wrapper_that_has_nothing_to_do_calls_the_real_one_and_nothing_else)
{
    static const char *const modes[] = {"mode:off", "mode:trace", "mode:audit"};
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        const char *const argv[] = {ECHO_CLIENT, NULL};
        run(&plain, argv, ECHO_FOLDER, NULL, NULL);
        run(&hooked, argv, ECHO_FOLDER, PRELOAD, modes[i]);
        assert_int_equal(plain.status, 0);
        assert_non_null(strstr(plain.out, "hooks, 0 wrong\n"));
        compare();
        assert_non_null(strstr(hooked.out, "from cuMemAlloc_v2 " OURS));
    }
}

/* Check that with another preload, in both orders, a program runs as with that one alone, with a
 * line of output: `line_behind` if the other is first. */
static void assert_gives_way(const char *const *argv, const char *rival, const char *line_behind)
{
    char both[4096];
    for (int is_first = 0; is_first < 2; is_first++) {
        snprintf(both, sizeof both, "%s %s", is_first ? PRELOAD : rival,
                 is_first ? rival : PRELOAD);
        run(&plain, argv, DRIVER_FOLDER, rival, NULL);
        run(&hooked, argv, DRIVER_FOLDER, both, NULL);
        compare();
        assert_int_equal(plain.status, 0);
        const char *line = is_first ? "interposes cuMemAlloc_v2 too" : line_behind;
        assert_int_equal(child_count(hooked.err, line), 1);
        assert_non_null(strstr(hooked.err, "without Fallow\n"));
        assert_int_equal(child_count(hooked.err, "\n"), 1);
    }
}

TEST(we_give_way_to_another_that_exports)
{
    assert_gives_way((const char *[]){LINKED, NULL}, RIVAL_EXPORTS, "interposes cuMemAlloc_v2 too");
    assert_non_null(strstr(plain.out, "rival was asked: 1"));
    assert_gives_way((const char *[]){CLIENT, "name", NULL}, RIVAL_EXPORTS,
                     "interposes cuMemAlloc_v2 too");
}

TEST(we_give_way_to_another_that_answers_dlsym)
{
    assert_gives_way((const char *[]){CLIENT, "name", NULL}, RIVAL_ANSWERS,
                     "another preload's dlsym"); /* it queries no later library */
    assert_non_null(strstr(plain.out, "rival was asked: 1"));
    assert_gives_way((const char *[]){LINKED, NULL}, RIVAL_ANSWERS, "interposes cuMemAlloc_v2 too");
}

TEST(we_work_beside_another_that_only_watches)
{
    static const char *const orders[] = {RIVAL_WATCHES " " PRELOAD, PRELOAD " " RIVAL_WATCHES};
    for (unsigned i = 0; i < 2; i++) {
        const char *const argv[] = {CLIENT, "name", NULL};
        run(&plain, argv, DRIVER_FOLDER, RIVAL_WATCHES, NULL);
        run(&hooked, argv, DRIVER_FOLDER, orders[i], NULL);
        compare();
        assert_hooked("cuMemAlloc_v2");
        assert_non_null(strstr(hooked.out, "rival was asked: 1"));
        assert_string_equal(hooked.err, "");
    }
}

/* A real runtime refuses a simulated driver (36 or 103), after it has looked everything up. */
static void assert_runtime_is_reached(const char *const *argv, const char *folders)
{
    run(&plain, argv, folders, NULL, NULL);
    run(&hooked, argv, folders, PRELOAD, NULL);
    assert_int_equal(plain.status, 0);
    assert_int_equal(hooked.status, 0);
    child_without(plain.out, "answers ", plain_words);
    child_without(hooked.out, "answers ", hooked_words);
    assert_string_equal(hooked_words, plain_words);
    static const char *const names[] = {"cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemFree_v2",
                                        "cuMemAllocAsync", "cuMemAllocAsync_ptsz"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char line[200];
        snprintf(line, sizeof line, "answers %s 0\n", names[i]);
        assert_null(strstr(hooked.out, line));
        snprintf(line, sizeof line, "answers %s ", names[i]);
        assert_non_null(strstr(hooked.out, line));
    }
    assert_int_equal(child_count(hooked.err, "fallow: "), 0);
}

TEST(a_program_of_nvcc_with_the_static_runtime_is_reached)
{
    if (access(RUNTIME_STATIC, X_OK) != 0) {
        skip();
    }
    assert_runtime_is_reached((const char *[]){RUNTIME_STATIC, NULL}, DRIVER_FOLDER);
    assert_non_null(strstr(plain.out, "cudaMalloc ")); /* the same result, success or not */
}

TEST(a_program_of_nvcc_with_the_shared_runtime_is_reached)
{
    if (access(RUNTIME_SHARED, X_OK) != 0) {
        skip();
    }
    assert_runtime_is_reached((const char *[]){RUNTIME_SHARED, NULL}, DRIVER_FOLDER);
    assert_non_null(strstr(plain.out, "cudaMalloc "));
}

/* Libraries that carry a runtime of their own, linked statically and hidden. */
TEST(the_runtimes_inside_libraries_are_reached)
{
    static const char *const inner[][2] = {{TOOLKIT "/libcublas.so", "cublasCreate_v2"},
                                           {TOOLKIT "/libcudnn.so", "cudnnCreate"}};
    unsigned tried = 0;
    for (unsigned i = 0; i < sizeof inner / sizeof *inner; i++) {
        if (access(inner[i][0], R_OK) != 0 || access(PYTHON, X_OK) != 0) {
            continue;
        }
        assert_runtime_is_reached(
            (const char *[]){PYTHON, INNER_RUNTIME, inner[i][0], inner[i][1], NULL},
            DRIVER_FOLDER ":" TOOLKIT);
        tried++;
    }
    if (tried == 0) {
        skip();
    }
}

TEST(a_preloaded_malloc_changes_nothing)
{
    static const char *const orders[] = {PRELOADED_MALLOC " " PRELOAD,
                                         PRELOAD " " PRELOADED_MALLOC};
    if (access(PRELOADED_MALLOC, R_OK) != 0) {
        skip();
    }
    for (unsigned i = 0; i < 2; i++) {
        const char *const argv[] = {CLIENT, "name", NULL};
        run(&plain, argv, DRIVER_FOLDER, PRELOADED_MALLOC, NULL);
        run(&hooked, argv, DRIVER_FOLDER, orders[i], NULL);
        compare();
        assert_reached();
    }
}

FLW_TEST_MAIN(NULL, NULL)
