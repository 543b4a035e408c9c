// SPDX-License-Identifier: Apache-2.0
//
// Owns: the part of PyTorch's c10::Error that throwing needs: names, bases, members with destructors. Built into a
// libc10.so (c10_look_alike.cpp).
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

// Throw an OutOfMemoryError, as PyTorch does.
void throw_out_of_memory();
} // namespace c10
