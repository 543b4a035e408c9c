/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of tests of exports, imports and peers: a pool with contents and exports,
 * on the first of three devices. */
#ifndef FLW_TESTS_UNIT_TEST_API_SHARE_H
#define FLW_TESTS_UNIT_TEST_API_SHARE_H

#include "fallow/share.h"
#include "unit/pool/test_api.h"

static inline void begin_sharing(struct api *api, uint32_t handle_types)
{
    flw_sim_config world = flw_sim_config_default(21);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_bytes = 256 * MIB;
    world.device_count = 3;
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.handle_types = handle_types;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static inline fallow_share exported(struct api *api, void *ptr, uint32_t type)
{
    fallow_share share;
    fallow_share_init(&share);
    assert_int_equal(fallow_export(api->pool, ptr, type, &share), FALLOW_OK);
    return share;
}

#endif
