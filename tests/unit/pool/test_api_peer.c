/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: changes of peers while another thread's unimport is refused.
 */
#include "base/random.h"
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static unsigned long long access_of(struct api *api, void *ptr, int device)
{
    unsigned long long flags = 99;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    assert_int_equal(api->sim.cu.cuMemGetAccess(&flags, &location, (CUdeviceptr)(uintptr_t)ptr), 0);
    return flags;
}

struct refused {
    struct api *api;
    void *seen;
    atomic_bool began, ends;
    bool is_other; /* something else was answered */
};

static void *unimport_in_vain(void *context)
{
    struct refused *refused = context;
    while (!atomic_load(&refused->ends)) {
        refused->is_other |= fallow_unimport(refused->api->pool, refused->seen) != FALLOW_CAPTURING;
        atomic_store(&refused->began, true);
    }
    return NULL;
}

/* One that a capture keeps from going is given and denied to peers all the same. */
TEST(an_import_that_stays_is_seen_by_every_change_of_peers)
{
    struct api api;
    struct refused refused = {.api = &api};
    pthread_t thread;
    unsigned missed = 0;
    api_begin_sharing(&api, FALLOW_HANDLE_FD);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = api_export(&api, ptr, FALLOW_HANDLE_FD);
    assert_int_equal(fallow_import(api.pool, &share, &refused.seen), FALLOW_OK);
    close(share.descriptor);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(pthread_create(&thread, NULL, unimport_in_vain, &refused), 0);
    while (!atomic_load(&refused.began)) {
        sched_yield();
    }
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_OK);
        missed += access_of(&api, refused.seen, 1) != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        assert_int_equal(fallow_pool_deny_peer(api.pool, 1), FALLOW_OK);
        missed += access_of(&api, refused.seen, 1) != 0;
    }
    atomic_store(&refused.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(refused.is_other);
    assert_int_equal(missed, 0);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_unimport(api.pool, refused.seen), FALLOW_OK);
    api_end(&api);
}
