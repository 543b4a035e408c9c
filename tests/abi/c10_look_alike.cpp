// SPDX-License-Identifier: Apache-2.0
#include "c10_look_alike.h"

namespace c10
{
std::atomic<int> Error::living{0};

Error::Error(SourceLocation source_location, std::string msg)
    : msg_(std::move(msg)), context_{source_location.function, source_location.file},
      backtrace_(std::make_shared<const std::string>("a backtrace")),
      what_(new std::string(msg_ + " from " + context_[0])), what_without_backtrace_(msg_)
{
    living++;
}

const char *Error::what() const noexcept
{
    return what_->c_str();
}

void throw_out_of_memory()
{
    throw OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "out of memory");
}
} // namespace c10
