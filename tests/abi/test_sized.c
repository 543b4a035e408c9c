/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the rules of struct_size, for every sized struct: an older caller's struct is smaller, and
 * memory after the end is untouched; a newer caller's is larger: the unknown tail must be zero if
 * the library reads it, and is zeroed if the library fills it. Each struct ends at the end of the
 * page. */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fallow/fallow.h"
#include "fallow/publish.h"
#include "fallow/share.h"
#include "fallow/sleep.h"
#include "fallow/trace.h"
#include "support/test.h"

#define TAIL_BYTES 64
#define SMALLEST   sizeof(size_t)

/* A page followed by an unreadable one. */
struct fenced_page {
    unsigned char *end;
    size_t page_bytes;
};

static struct fenced_page page;

static int map_page(void **state)
{
    page.page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *start =
        mmap(NULL, 2 * page.page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(start != MAP_FAILED);
    page.end = start + page.page_bytes;
    return mprotect(page.end, page.page_bytes, PROT_NONE);
}

static int unmap_page(void **state)
{
    return munmap(page.end - page.page_bytes, 2 * page.page_bytes);
}

/* size bytes of rubbish that end at the page's end, but for a struct_size of that value */
static void *sized_rubbish(size_t size)
{
    assert_true(size >= SMALLEST && size <= page.page_bytes);
    memset(page.end - page.page_bytes, 0xA5, page.page_bytes);
    memcpy(page.end - size, &size, sizeof size);
    return page.end - size;
}

static bool all_are(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value) {
            return false;
        }
    }
    return true;
}

static fallow_pool *new_pool(void)
{
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = (size_t)64 << 20;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_OK);
    return pool;
}

/* ---- structs that the library reads */

typedef void (*init_function)(void *object, size_t struct_size);
/* Use the struct like a caller of the size; return the library's status. */
typedef fallow_status (*read_function)(fallow_pool *pool, void *object);

static void init_config(void *object, size_t size)
{
    fallow_pool_config_init_sized(object, size);
    const char *driver = "sim";
    memcpy((char *)object + offsetof(fallow_pool_config, driver), &driver, sizeof driver);
}

static fallow_status read_config(fallow_pool *unused, void *object)
{
    fallow_pool *pool = NULL;
    (void)unused;
    fallow_status status = fallow_pool_create(object, &pool);
    assert_true((pool != NULL) == (status == FALLOW_OK));
    fallow_pool_destroy(pool);
    return status;
}

static void init_request(void *object, size_t size)
{
    const size_t bytes = 4096;
    fallow_request_init_sized(object, size);
    memcpy((char *)object + offsetof(fallow_request, size_bytes), &bytes, sizeof bytes);
}

static fallow_status read_request(fallow_pool *pool, void *object)
{
    void *block = object;
    fallow_status status = fallow_alloc_request(pool, object, NULL, &block);
    assert_true((block != NULL) == (status == FALLOW_OK));
    assert_int_equal(fallow_free(pool, block, NULL), FALLOW_OK);
    return status;
}

/* A flight recorder without a path. */
static void init_record_config(void *object, size_t size)
{
    fallow_record_config_init_sized(object, size);
}

static fallow_status read_record_config(fallow_pool *pool, void *object)
{
    fallow_recorder *recorder = NULL;
    fallow_status status = fallow_record_start(pool, object, &recorder);
    assert_true((recorder != NULL) == (status == FALLOW_OK));
    assert_int_equal(fallow_record_stop(recorder),
                     status == FALLOW_OK ? FALLOW_OK : FALLOW_INVALID_RECORDER);
    return status;
}

static void init_publish_config(void *object, size_t size)
{
    fallow_publish_config_init_sized(object, size);
}

/* The oldest one names no folder: /dev/shm, which this machine may lack. */
static fallow_status read_publish_config(fallow_pool *pool, void *object)
{
    (void)pool;
    fallow_status status = fallow_publish_start(object);
    if (status == FALLOW_OK) {
        fallow_publish_stop();
    }
    return status == FALLOW_IO ? FALLOW_OK : status;
}

/* from: the oldest caller has everything before this offset */
static void expect_read(size_t from, size_t our_size, init_function init, read_function read)
{
    fallow_pool *pool = new_pool();
    for (size_t size = from; size <= our_size + TAIL_BYTES; size += 8) {
        void *object = sized_rubbish(size);
        init(object, size);
        assert_int_equal(*(size_t *)object, size);
        assert_int_equal(read(pool, object), FALLOW_OK);
    }
    for (size_t at = our_size; at < our_size + TAIL_BYTES; at++) {
        unsigned char *object = sized_rubbish(our_size + TAIL_BYTES);
        init(object, our_size + TAIL_BYTES);
        object[at] = 1;
        assert_int_equal(read(pool, object), FALLOW_VERSION);
    }
    size_t *object = sized_rubbish(our_size);
    init(object, our_size);
    *object = SMALLEST - 1;
    assert_int_equal(read(pool, object), FALLOW_VERSION);
    fallow_pool_destroy(pool);
}

static void a_config_of_any_age_is_read(void **state)
{
    expect_read(offsetof(fallow_pool_config, context), sizeof(fallow_pool_config), init_config,
                read_config);
}

static void a_request_of_any_age_is_read(void **state)
{
    expect_read(offsetof(fallow_request, align_bytes), sizeof(fallow_request), init_request,
                read_request);
}

static void a_record_config_of_any_age_is_read(void **state)
{
    expect_read(offsetof(fallow_record_config, ring_bytes), sizeof(fallow_record_config),
                init_record_config, read_record_config);
}

static void a_publish_config_of_any_age_is_read(void **state)
{
    expect_read(sizeof(size_t), sizeof(fallow_publish_config), init_publish_config,
                read_publish_config);
}

static void init_sleep_request(void *object, size_t size)
{
    fallow_sleep_request_init_sized(object, size);
}

static fallow_status read_sleep_request(fallow_pool *pool, void *object)
{
    fallow_status status = fallow_pool_sleep(pool, object);
    assert_int_equal(fallow_pool_wake(pool), FALLOW_OK);
    return status;
}

static void a_sleep_request_of_any_age_is_read(void **state)
{
    expect_read(sizeof(size_t), sizeof(fallow_sleep_request), init_sleep_request,
                read_sleep_request);
}

/* Fill a share as far as possible without a descriptor: it is parsed, and refused. */
static void init_share(void *object, size_t size)
{
    fallow_share_init_sized(object, size);
}

static fallow_status read_share(fallow_pool *pool, void *object)
{
    void *ptr = object;
    fallow_status status = fallow_import(pool, object, &ptr);
    assert_null(ptr);
    return status == FALLOW_INVALID_ARGUMENT ? FALLOW_OK : status;
}

static void a_share_of_any_age_is_read(void **state)
{
    expect_read(sizeof(size_t), sizeof(fallow_share), init_share, read_share);
}

/* ---- structs that the library fills */

static void *live_block;

static void init_stats(void *object, size_t size)
{
    fallow_stats_init_sized(object, size);
}

static fallow_status fill_stats(fallow_pool *pool, void *object)
{
    return fallow_pool_get_stats(pool, object);
}

static void init_block(void *object, size_t size)
{
    fallow_block_init_sized(object, size);
}

static fallow_status fill_block(fallow_pool *pool, void *object)
{
    return fallow_block_info(pool, live_block, object);
}

static void init_report(void *object, size_t size)
{
    fallow_oom_report_init_sized(object, size);
}

static fallow_status fill_report(fallow_pool *pool, void *object)
{
    return fallow_pool_get_oom_report(pool, object);
}

static void expect_fill(size_t our_size, init_function init, read_function fill)
{
    fallow_pool *pool = new_pool();
    void *too_much = NULL;
    assert_int_equal(fallow_alloc(pool, 4096, NULL, &live_block), FALLOW_OK);
    assert_int_equal(fallow_alloc(pool, (size_t)1 << 30, NULL, &too_much), FALLOW_OUT_OF_MEMORY);
    unsigned char *whole = sized_rubbish(our_size);
    uint64_t first = 0;
    init(whole, our_size);
    assert_int_equal(fill(pool, whole), FALLOW_OK);
    memcpy(&first, whole + sizeof(size_t), sizeof first);
    assert_true(first != 0);
    for (size_t size = SMALLEST; size <= our_size + TAIL_BYTES; size += 8) {
        unsigned char *object = sized_rubbish(size);
        init(object, size);
        memset(object + sizeof size, 0xA5, size - sizeof size);
        assert_int_equal(fill(pool, object), FALLOW_OK);
        assert_memory_equal(object, &size, sizeof size);
        if (size >= sizeof size + sizeof first) {
            assert_memory_equal(object + sizeof size, &first, sizeof first);
        }
        if (size > our_size) {
            assert_true(all_are(object + our_size, size - our_size, 0));
        }
        assert_true(all_are(page.end - page.page_bytes, page.page_bytes - size, 0xA5));
    }
    size_t *object = sized_rubbish(our_size);
    *object = SMALLEST - 1;
    assert_int_equal(fill(pool, object), FALLOW_VERSION);
    assert_true(all_are((unsigned char *)object + sizeof *object, our_size - sizeof *object, 0xA5));
    assert_int_equal(fallow_free(pool, live_block, NULL), FALLOW_OK);
    fallow_pool_destroy(pool);
}

static void statistics_fill_a_struct_of_any_age(void **state)
{
    expect_fill(sizeof(fallow_stats), init_stats, fill_stats);
}

static void block_info_fills_a_struct_of_any_age(void **state)
{
    expect_fill(sizeof(fallow_block), init_block, fill_block);
}

static void the_report_fills_a_struct_of_any_age(void **state)
{
    expect_fill(sizeof(fallow_oom_report), init_report, fill_report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_of_any_age_is_read),
        cmocka_unit_test(a_request_of_any_age_is_read),
        cmocka_unit_test(a_record_config_of_any_age_is_read),
        cmocka_unit_test(a_publish_config_of_any_age_is_read),
        cmocka_unit_test(a_sleep_request_of_any_age_is_read),
        cmocka_unit_test(a_share_of_any_age_is_read),
        cmocka_unit_test(statistics_fill_a_struct_of_any_age),
        cmocka_unit_test(block_info_fills_a_struct_of_any_age),
        cmocka_unit_test(the_report_fills_a_struct_of_any_age),
    };
    return cmocka_run_group_tests(tests, map_page, unmap_page);
}
