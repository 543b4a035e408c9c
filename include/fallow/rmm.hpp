/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * A pool as a memory resource of RMM.
 *
 *     fallow::rmm_resource resource(pool.get());
 *     rmm::mr::set_current_device_resource(resource);    // RMM up to 26.04: (&resource)
 *
 * A rmm::mr::device_memory_resource in RMM 24.12 to 26.04, whose resources derive from that class; a resource of
 * cuda::mr in RMM from 26.06 on. Ownership, order and cost are those of cuda_mr.hpp; up to 26.04 RMM keeps a pointer to
 * the resource, and its calls without a stream use the legacy default stream.
 *
 * ERRORS     Throws RMM's exceptions, so that failure_callback_resource_adaptor catches them: rmm::out_of_memory if
 *            device memory runs out, else rmm::bad_alloc.
 */
#ifndef FALLOW_RMM_HPP
#define FALLOW_RMM_HPP

#include <rmm/error.hpp>
#include <rmm/version_config.hpp>

#include "fallow/cuda_mr.hpp"

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#define FALLOW_HAS_RMM_BASE
#include <rmm/mr/device_memory_resource.hpp>
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#define FALLOW_HAS_RMM_BASE
#include <rmm/mr/device/device_memory_resource.hpp>
#endif

namespace fallow
{

/** Throw an exception of RMM unless `status` is FALLOW_OK. */
inline void check_for_rmm(fallow_status status)
{
    if (status == FALLOW_OUT_OF_MEMORY) {
        throw rmm::out_of_memory(fallow_status_message(status));
    }
    if (status != FALLOW_OK) {
        throw rmm::bad_alloc(fallow_status_message(status));
    }
}

#ifdef FALLOW_HAS_RMM_BASE
/** A resource of RMM. */
class rmm_resource final : public rmm::mr::device_memory_resource
{
  public:
    explicit rmm_resource(fallow_pool *pool) noexcept : resource_(pool)
    {
    }

  private:
    void *do_allocate(std::size_t size_bytes, rmm::cuda_stream_view stream) override
    {
        return resource_.allocate(stream, size_bytes);
    }
    void do_deallocate(void *block, std::size_t size_bytes,
                       rmm::cuda_stream_view stream) noexcept override
    {
        resource_.deallocate(stream, block, size_bytes);
    }
    bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override
    {
        auto same = dynamic_cast<const rmm_resource *>(&other);
        return same != nullptr && same->resource_ == resource_;
    }
    basic_memory_resource<check_for_rmm> resource_;
};
#else
using rmm_resource = basic_memory_resource<check_for_rmm>;
#endif

} // namespace fallow

#endif
