/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Fallow from C++17, header-only: objects that free what they own, and exceptions in place of statuses.
 *
 *     fallow::pool_config config;
 *     config.limit_bytes = std::size_t{8} << 30;
 *     fallow::pool pool(config);
 *     {
 *         fallow::buffer block(pool.get(), 64 << 20, stream);
 *         scale<<<grid, threads, 0, stream>>>(block.data<float>());
 *     } // freed in the order of `stream`, without a wait
 *
 * Everything else is the C API: check() throws if a call fails, and arena, layout, lease and capture are
 * std::unique_ptrs that own the objects of the C API.
 *
 *     fallow::arena arena;
 *     fallow::check(fallow_arena_create(pool.get(), nullptr, fallow::out(arena)));
 *
 * ERRORS     Constructors and check() throw `bad_alloc` (a std::bad_alloc) if memory runs out, else `error`. A failure
 *            changes nothing. Destructors ignore statuses: misuse_count of the pool counts refused frees.
 * ORDER      As in fallow.h: a buffer may be used by work queued on its stream after the constructor returns, and all
 *            use must be queued before, or ordered before the end of, the stream that frees the buffer.
 * OWNERSHIP  Objects are move-only, and hold plain handles of each other. An object that outlives its pool is safe to
 *            destroy; the pool has freed the memory.
 * THREADS    Objects may move between threads. One object, like a std::unique_ptr, is for one thread at a time; a pool
 *            serves all threads at once.
 * COST       That of the C call, inline; nothing else is allocated, not even for an exception's text.
 */
#ifndef FALLOW_FALLOW_HPP
#define FALLOW_FALLOW_HPP

#include <cstddef>
#include <exception>
#include <memory>
#include <new>

#include "fallow/arena.h"
#include "fallow/fallow.h"

namespace fallow
{

/** A status as an exception; what() is its sentence. */
template <class Base> struct failure : Base {
    fallow_status status;
    explicit failure(fallow_status failed) noexcept : status(failed)
    {
    }
    const char *what() const noexcept override
    {
        return fallow_status_message(status);
    }
};
using error = failure<std::exception>;
/** Thrown if device memory, host memory or pinned memory runs out; fallow_pool_get_oom_report explains. */
using bad_alloc = failure<std::bad_alloc>;

/** Throw unless `status` is FALLOW_OK. */
inline void check(fallow_status status)
{
    switch (status) {
    case FALLOW_OK:
        return;
    case FALLOW_OUT_OF_MEMORY:
    case FALLOW_OUT_OF_HOST_MEMORY:
    case FALLOW_OUT_OF_PINNED_MEMORY:
        throw bad_alloc(status);
    default:
        throw error(status);
    }
}

/** A struct of the C API with its defaults set. */
template <class Struct, void (*init)(Struct *, std::size_t)> struct defaults : Struct {
    defaults() noexcept
    {
        init(this, sizeof(Struct));
    }
};
using pool_config = defaults<fallow_pool_config, fallow_pool_config_init_sized>;
using arena_config = defaults<fallow_arena_config, fallow_arena_config_init_sized>;
using request = defaults<fallow_request, fallow_request_init_sized>;
using stats = defaults<fallow_stats, fallow_stats_init_sized>;
using oom_report = defaults<fallow_oom_report, fallow_oom_report_init_sized>;

/** A deleter that calls `end`, for a std::unique_ptr that owns an object of the C API. */
template <auto end> struct ends_by {
    template <class T> void operator()(T *object) const noexcept
    {
        end(object);
    }
};
/** End a lease on the stream of its begin. */
inline void end_lease(fallow_lease *lease) noexcept
{
    [[maybe_unused]] fallow_status status = fallow_lease_end(lease, FALLOW_LEASE_STREAM);
}
/** End a capture, if open, and release its memory. The contracts of fallow_capture_end and _release apply: capturing has
 *  ended, and the graph is destroyed. */
inline void end_capture(fallow_capture *capture) noexcept
{
    [[maybe_unused]] fallow_status status = fallow_capture_end(capture);
    status = fallow_capture_release(capture);
}
using layout = std::unique_ptr<fallow_layout, ends_by<fallow_layout_destroy>>;
using arena = std::unique_ptr<fallow_arena, ends_by<fallow_arena_destroy>>;
using lease = std::unique_ptr<fallow_lease, ends_by<end_lease>>;
using capture = std::unique_ptr<fallow_capture, ends_by<end_capture>>;

/** The last argument of a call that creates: fallow::out(owner). When the whole expression is evaluated, the
 *  std::unique_ptr `owner` owns the new object, or is empty after a failure. */
template <class Owner> class out
{
  public:
    explicit out(Owner &owner) noexcept : owner_(owner)
    {
    }
    out(const out &) = delete;
    ~out()
    {
        owner_.reset(created_);
    }
    operator typename Owner::pointer *() noexcept
    {
        return &created_;
    }

  private:
    Owner &owner_;
    typename Owner::pointer created_ = nullptr;
};

/** A pool; get() is its handle for the C calls. */
struct pool : std::unique_ptr<fallow_pool, ends_by<fallow_pool_destroy>> {
    explicit pool(const fallow_pool_config &config = pool_config())
    {
        check(fallow_pool_create(&config, out<unique_ptr>(*this)));
    }
};

/** Frees a block in the order of a stream. */
struct free_on_stream {
    fallow_pool *pool = nullptr;
    fallow_stream stream = nullptr;
    void operator()(void *block) const noexcept
    {
        fallow_free(pool, block, stream);
    }
};

/** A block of device memory. To free the block on another stream than its allocation's, set get_deleter().stream. */
struct buffer : std::unique_ptr<void, free_on_stream> {
    buffer() noexcept = default;
    /** Allocate as fallow_alloc does. */
    buffer(fallow_pool *pool, std::size_t size_bytes, fallow_stream stream)
        : unique_ptr(nullptr, {pool, stream})
    {
        void *block = nullptr;
        check(fallow_alloc(pool, size_bytes, stream, &block));
        reset(block);
    }
    /** Allocate as fallow_alloc_request does. */
    buffer(fallow_pool *pool, const fallow_request &wishes, fallow_stream stream)
        : unique_ptr(nullptr, {pool, stream})
    {
        void *block = nullptr;
        check(fallow_alloc_request(pool, &wishes, stream, &block));
        reset(block);
    }
    template <class T> T *data() const noexcept
    {
        return static_cast<T *>(get());
    }
};

} // namespace fallow

#endif
