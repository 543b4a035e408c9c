// SPDX-License-Identifier: Apache-2.0
//
// Owns: as much of PyTorch's c10::Error as a thrown one needs: names, bases, members that are destroyed. It is built
// into a libc10.so (c10_look_alike.cpp).
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace c10
{
struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class __attribute__((visibility("default"))) Error : public std::exception
{
    std::string msg_;
    std::vector<std::string> context_;
    std::shared_ptr<const std::string> backtrace_;
    std::unique_ptr<std::string> what_;
    std::string what_without_backtrace_;
    const void *caller_ = nullptr;

  public:
    static std::atomic<int> living;
    Error(SourceLocation source_location, std::string msg);
    Error(const Error &) = delete;
    ~Error() override
    {
        living--;
    }
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept
    {
        return what_without_backtrace_.c_str();
    }
};

class __attribute__((visibility("default"))) OutOfMemoryError : public Error
{
    using Error::Error;
};

// Throws one, as PyTorch does somewhere.
void throw_out_of_memory();
} // namespace c10
