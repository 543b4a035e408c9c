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

/* Initialise the struct with the caller's size. */
#define INIT(type)                                     \
    static void init_##type(void *object, size_t size) \
    {                                                  \
        fallow_##type##_init_sized(object, size);      \
    }
INIT(record_config) /* a flight recorder without a path */
INIT(publish_config)
INIT(sleep_request)
INIT(share) /* without a descriptor: parsed, and refused */
INIT(stats)
INIT(block)
INIT(oom_report)

static void init_pool_config(void *object, size_t size)
{
    const char *driver = "sim";
    fallow_pool_config_init_sized(object, size);
    memcpy((char *)object + offsetof(fallow_pool_config, driver), &driver, sizeof driver);
}

static void init_request(void *object, size_t size)
{
    const size_t bytes = 4096;
    fallow_request_init_sized(object, size);
    memcpy((char *)object + offsetof(fallow_request, size_bytes), &bytes, sizeof bytes);
}

/* ---- structs that the library reads: use the struct, and return the library's status */

static fallow_status read_pool_config(fallow_pool *unused, void *object)
{
    fallow_pool *pool = NULL;
    (void)unused;
    fallow_status status = fallow_pool_create(object, &pool);
    assert_true((pool != NULL) == (status == FALLOW_OK));
    fallow_pool_destroy(pool);
    return status;
}

static fallow_status read_request(fallow_pool *pool, void *object)
{
    void *block = object;
    fallow_status status = fallow_alloc_request(pool, object, NULL, &block);
    assert_true((block != NULL) == (status == FALLOW_OK));
    assert_int_equal(fallow_free(pool, block, NULL), FALLOW_OK);
    return status;
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

/* The oldest struct names no folder: /dev/shm, which this machine may lack. */
static fallow_status read_publish_config(fallow_pool *pool, void *object)
{
    (void)pool;
    fallow_status status = fallow_publish_start(object);
    if (status == FALLOW_OK) {
        fallow_publish_stop();
    }
    return status == FALLOW_IO ? FALLOW_OK : status;
}

static fallow_status read_sleep_request(fallow_pool *pool, void *object)
{
    fallow_status status = fallow_pool_sleep(pool, object);
    assert_int_equal(fallow_pool_wake(pool), FALLOW_OK);
    return status;
}

static fallow_status read_share(fallow_pool *pool, void *object)
{
    void *ptr = object;
    fallow_status status = fallow_import(pool, object, &ptr);
    assert_null(ptr);
    return status == FALLOW_INVALID_ARGUMENT ? FALLOW_OK : status;
}

struct sized {
    const char *name;
    void (*init)(void *object, size_t struct_size);
    fallow_status (*use)(fallow_pool *pool, void *object);
    size_t size;
    size_t oldest; /* of a struct that is read: the size in the first version */
};

#define READ(type, oldest)                                             \
    {                                                                  \
#type, init_##type, read_##type, sizeof(fallow_##type), oldest \
    }

static void structs_of_any_age_are_read(void **state)
{
    static const struct sized structs[] = {
        READ(pool_config, offsetof(fallow_pool_config, context)),
        READ(request, offsetof(fallow_request, align_bytes)),
        READ(record_config, offsetof(fallow_record_config, ring_bytes)),
        READ(publish_config, SMALLEST),
        READ(sleep_request, SMALLEST),
        READ(share, SMALLEST)};
    for (const struct sized *s = structs; s < structs + sizeof structs / sizeof *structs; s++) {
        fallow_pool *pool = new_pool();
        print_message("%s\n", s->name);
        for (size_t size = s->oldest; size <= s->size + TAIL_BYTES; size += 8) {
            void *object = sized_rubbish(size);
            s->init(object, size);
            assert_int_equal(*(size_t *)object, size);
            assert_int_equal(s->use(pool, object), FALLOW_OK);
        }
        for (size_t at = s->size; at < s->size + TAIL_BYTES; at++) {
            unsigned char *object = sized_rubbish(s->size + TAIL_BYTES);
            s->init(object, s->size + TAIL_BYTES);
            object[at] = 1;
            assert_int_equal(s->use(pool, object), FALLOW_VERSION);
        }
        size_t *object = sized_rubbish(s->size);
        s->init(object, s->size);
        *object = SMALLEST - 1;
        assert_int_equal(s->use(pool, object), FALLOW_VERSION);
        fallow_pool_destroy(pool);
    }
}

/* ---- structs that the library fills */

static void *live_block;

static fallow_status fill_stats(fallow_pool *pool, void *object)
{
    return fallow_pool_get_stats(pool, object);
}

static fallow_status fill_block(fallow_pool *pool, void *object)
{
    return fallow_block_info(pool, live_block, object);
}

static fallow_status fill_oom_report(fallow_pool *pool, void *object)
{
    return fallow_pool_get_oom_report(pool, object);
}

static void expect_filled(const struct sized *s, fallow_pool *pool, size_t size, uint64_t first)
{
    unsigned char *object = sized_rubbish(size);
    s->init(object, size);
    memset(object + sizeof size, 0xA5, size - sizeof size);
    assert_int_equal(s->use(pool, object), FALLOW_OK);
    assert_memory_equal(object, &size, sizeof size);
    if (size >= sizeof size + sizeof first) {
        assert_memory_equal(object + sizeof size, &first, sizeof first);
    }
    if (size > s->size) {
        assert_true(all_are(object + s->size, size - s->size, 0));
    }
    assert_true(all_are(page.end - page.page_bytes, page.page_bytes - size, 0xA5));
}

#define FILLED(type)                                              \
    {                                                             \
#type, init_##type, fill_##type, sizeof(fallow_##type), 0 \
    }

static void structs_of_any_age_are_filled(void **state)
{
    static const struct sized structs[] = {FILLED(stats), FILLED(block), FILLED(oom_report)};
    fallow_pool *pool = new_pool();
    void *too_much = NULL;
    assert_int_equal(fallow_alloc(pool, 4096, NULL, &live_block), FALLOW_OK);
    assert_int_equal(fallow_alloc(pool, (size_t)1 << 30, NULL, &too_much), FALLOW_OUT_OF_MEMORY);
    for (const struct sized *s = structs; s < structs + sizeof structs / sizeof *structs; s++) {
        unsigned char *whole = sized_rubbish(s->size);
        uint64_t first = 0;
        print_message("%s\n", s->name);
        s->init(whole, s->size);
        assert_int_equal(s->use(pool, whole), FALLOW_OK);
        memcpy(&first, whole + sizeof(size_t), sizeof first);
        assert_true(first != 0);
        for (size_t size = SMALLEST; size <= s->size + TAIL_BYTES; size += 8) {
            expect_filled(s, pool, size, first);
        }
        size_t *object = sized_rubbish(s->size);
        *object = SMALLEST - 1;
        assert_int_equal(s->use(pool, object), FALLOW_VERSION);
        assert_true(
            all_are((unsigned char *)object + sizeof *object, s->size - sizeof *object, 0xA5));
    }
    assert_int_equal(fallow_free(pool, live_block, NULL), FALLOW_OK);
    fallow_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(structs_of_any_age_are_read),
                                       cmocka_unit_test(structs_of_any_age_are_filled)};
    return cmocka_run_group_tests(tests, map_page, unmap_page);
}
