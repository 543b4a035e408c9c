/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the offsets and sizes of the structures that the Python module (tools/python/fallow) declares again.
 * Prints "structure field offset bytes", one field a line.
 */
#include <stdio.h>

#include "fallow/arena.h"
#include "fallow/fallow.h"
#include "fallow/layouts.h"
#include "fallow/plugin.h"
#include "fallow/sleep.h"
#include "fallow/trace.h"

#define FIELD(type, name) \
    printf("%s %s %zu %zu\n", #type, #name, offsetof(type, name), sizeof(((type *)0)->name))

static void print_request(void)
{
    FIELD(fallow_request, struct_size);
    FIELD(fallow_request, size_bytes);
    FIELD(fallow_request, align_bytes);
    FIELD(fallow_request, flags);
    FIELD(fallow_request, tag);
}

static void print_pool(void)
{
    FIELD(fallow_pool_config, struct_size);
    FIELD(fallow_pool_config, device);
    FIELD(fallow_pool_config, driver);
    FIELD(fallow_pool_config, context);
    FIELD(fallow_pool_config, limit_bytes);
    FIELD(fallow_pool_config, economy);
    FIELD(fallow_pool_config, cache_bytes);
    FIELD(fallow_pool_config, decay_ms);
    FIELD(fallow_pool_config, reuse_policy);
    FIELD(fallow_pool_config, checks);
    FIELD(fallow_pool_config, streams_may_die);
    FIELD(fallow_pool_config, helper_thread);
    FIELD(fallow_pool_config, reserved_0);
    FIELD(fallow_pool_config, wait_ms);
    FIELD(fallow_pool_config, peer_devices);
    FIELD(fallow_pool_config, peer_device_count);
    FIELD(fallow_pool_config, handle_types);
    FIELD(fallow_pool_config, order);
    FIELD(fallow_pool_config, log);
    FIELD(fallow_pool_config, log_context);
    FIELD(fallow_pool_config, on_oom);
    FIELD(fallow_pool_config, oom_context);
    FIELD(fallow_pool_config, page_source);
    FIELD(fallow_pool_config, reserved_1);
    FIELD(fallow_pool_config, one_handle_bytes);
}

static void print_stats(void)
{
    FIELD(fallow_stats, struct_size);
    FIELD(fallow_stats, requested_bytes);
    FIELD(fallow_stats, live_bytes);
    FIELD(fallow_stats, reserved_bytes);
    FIELD(fallow_stats, peak_requested_bytes);
    FIELD(fallow_stats, peak_live_bytes);
    FIELD(fallow_stats, peak_reserved_bytes);
    FIELD(fallow_stats, alloc_count);
    FIELD(fallow_stats, free_count);
    FIELD(fallow_stats, zero_size_count);
    FIELD(fallow_stats, hit_count);
    FIELD(fallow_stats, event_count);
    FIELD(fallow_stats, steal_count);
    FIELD(fallow_stats, wait_count);
    FIELD(fallow_stats, driver_call_count);
    FIELD(fallow_stats, remap_count);
    FIELD(fallow_stats, remap_wait_count);
    FIELD(fallow_stats, grow_count);
    FIELD(fallow_stats, trim_count);
    FIELD(fallow_stats, lost_streams);
    FIELD(fallow_stats, misuse_count);
    FIELD(fallow_stats, oom_count);
    FIELD(fallow_stats, cached_bytes);
    FIELD(fallow_stats, deferred_bytes);
    FIELD(fallow_stats, captured_bytes);
    FIELD(fallow_stats, host_bytes);
    FIELD(fallow_stats, live_count);
    FIELD(fallow_stats, stream_count);
    FIELD(fallow_stats, uses_vmm);
    FIELD(fallow_stats, uses_membarrier);
    FIELD(fallow_stats, is_asleep);
    FIELD(fallow_stats, lost_membarrier);
    FIELD(fallow_stats, damage_count);
    FIELD(fallow_stats, unchecked_count);
    FIELD(fallow_stats, asleep_bytes);
    FIELD(fallow_stats, saved_bytes);
    FIELD(fallow_stats, exported_bytes);
    FIELD(fallow_stats, imported_bytes);
    FIELD(fallow_stats, bound_bytes);
    FIELD(fallow_stats, handle_types);
    FIELD(fallow_stats, page_source);
    FIELD(fallow_stats, allows_rdma);
    FIELD(fallow_stats, reserved_1);
    FIELD(fallow_stats, idle_bytes);
    FIELD(fallow_stats, question_count);
}

static void print_report(void)
{
    FIELD(fallow_oom_owner, stream_id);
    FIELD(fallow_oom_owner, tag);
    FIELD(fallow_oom_owner, count);
    FIELD(fallow_oom_owner, bytes);
    FIELD(fallow_oom_report, struct_size);
    FIELD(fallow_oom_report, size_bytes);
    FIELD(fallow_oom_report, limit_bytes);
    FIELD(fallow_oom_report, reserved_bytes);
    FIELD(fallow_oom_report, requested_bytes);
    FIELD(fallow_oom_report, free_bytes);
    FIELD(fallow_oom_report, largest_free_bytes);
    FIELD(fallow_oom_report, deferred_bytes);
    FIELD(fallow_oom_report, captured_bytes);
    FIELD(fallow_oom_report, device_free_bytes);
    FIELD(fallow_oom_report, fragmentation);
    FIELD(fallow_oom_report, stage_count);
    FIELD(fallow_oom_report, stage_ns);
    FIELD(fallow_oom_report, owner_count);
    FIELD(fallow_oom_report, reserved_0);
    FIELD(fallow_oom_report, owners);
    FIELD(fallow_oom_report, address_bytes);
    FIELD(fallow_oom_report, largest_address_bytes);
    FIELD(fallow_oom_report, lacks_addresses);
    FIELD(fallow_oom_report, reserved_1);
}

static void print_sleep(void)
{
    FIELD(fallow_sleep_request, struct_size);
    FIELD(fallow_sleep_request, flags);
    FIELD(fallow_sleep_request, reserved_0);
    FIELD(fallow_sleep_request, saved_tags);
    FIELD(fallow_sleep_request, saved_tag_count);
    FIELD(fallow_mempool_id, first);
    FIELD(fallow_mempool_id, second);
    printf("fallow_mempool_id - 0 %zu\n", sizeof(fallow_mempool_id));
}

static void print_record(void)
{
    FIELD(fallow_record_config, struct_size);
    FIELD(fallow_record_config, path);
    FIELD(fallow_record_config, ring_bytes);
    FIELD(fallow_record_config, flags);
    FIELD(fallow_record_config, dump_signal);
    FIELD(fallow_record_config, stack_depth);
    FIELD(fallow_record_config, reserved_0);
}

static void print_arena(void)
{
    FIELD(fallow_region, name);
    FIELD(fallow_region, size_bytes);
    FIELD(fallow_region, align_bytes);
    FIELD(fallow_region, init);
    FIELD(fallow_region, first_phase);
    FIELD(fallow_region, last_phase);
    FIELD(fallow_region, flags);
    FIELD(fallow_region, init_value);
    FIELD(fallow_region, init_step);
    FIELD(fallow_region, element_bytes);
    FIELD(fallow_region, reserved_0);
    FIELD(fallow_arena_config, struct_size);
    FIELD(fallow_arena_config, name);
    FIELD(fallow_arena_config, tag);
    FIELD(fallow_arena_config, checks);
    FIELD(fallow_arena_config, scratch_bytes);
    FIELD(fallow_arena_config, log);
    FIELD(fallow_arena_config, log_context);
    FIELD(fallow_arena_config, asks_captures);
    FIELD(fallow_arena_config, reserved_0);
    FIELD(fallow_arena_stats, struct_size);
    FIELD(fallow_arena_stats, scratch_bytes);
    FIELD(fallow_arena_stats, persistent_bytes);
    FIELD(fallow_arena_stats, lease_count);
    FIELD(fallow_arena_stats, grow_count);
    FIELD(fallow_arena_stats, wait_count);
    FIELD(fallow_arena_stats, init_count);
    FIELD(fallow_arena_stats, refuse_count);
    FIELD(fallow_arena_stats, damage_count);
    FIELD(fallow_arena_stats, unwritten_count);
    FIELD(fallow_arena_stats, generation);
    FIELD(fallow_arena_stats, is_locked);
    FIELD(fallow_arena_stats, is_leased);
    FIELD(fallow_arena_stats, is_pinned);
    FIELD(fallow_arena_stats, reserved_0);
    FIELD(fallow_arena_stats, capture_count);
    FIELD(fallow_arena_stats, tag);
    FIELD(fallow_arena_stats, reserved_1);
    FIELD(fallow_arena_stats, name);
}

static void print_model(void)
{
    FIELD(fallow_model, name);
    FIELD(fallow_model, layers);
    FIELD(fallow_model, hidden);
    FIELD(fallow_model, heads);
    FIELD(fallow_model, kv_heads);
    FIELD(fallow_model, head_dim);
    FIELD(fallow_model, intermediate);
    FIELD(fallow_model, vocab);
    FIELD(fallow_model, experts);
    FIELD(fallow_model, top_k);
    FIELD(fallow_model, expert_intermediate);
    FIELD(fallow_model, dense_layers);
    FIELD(fallow_model, shared_experts);
    FIELD(fallow_model, query_rank);
    FIELD(fallow_model, kv_rank);
    FIELD(fallow_model, rope_dim);
    FIELD(fallow_model, weight_bytes);
    printf("fallow_model - 0 %zu\n", sizeof(fallow_model));
}

static void print_step(void)
{
    FIELD(fallow_step, struct_size);
    FIELD(fallow_step, batch);
    FIELD(fallow_step, tokens);
    FIELD(fallow_step, context);
    FIELD(fallow_step, page_size);
    FIELD(fallow_step, chunk);
    FIELD(fallow_step, draft_tokens);
    FIELD(fallow_step, splits);
    FIELD(fallow_step, sm_count);
    FIELD(fallow_step, tensor_ranks);
    FIELD(fallow_step, expert_ranks);
    FIELD(fallow_step, block_rows);
    FIELD(fallow_step, value_bytes);
    FIELD(fallow_step, pads_values);
    FIELD(fallow_step, quantises);
    FIELD(fallow_step, activates_in_place);
    FIELD(fallow_step, overlaps);
    FIELD(fallow_step, reserved_0);
    FIELD(fallow_path, name);
    FIELD(fallow_path, summary);
    FIELD(fallow_path, make);
    FIELD(fallow_path, phases);
}

int main(void)
{
    print_request();
    print_pool();
    print_stats();
    print_report();
    print_sleep();
    print_record();
    print_arena();
    print_model();
    print_step();
    printf("fallow_region - 0 %zu\n", sizeof(fallow_region));
    return 0;
}
