// A buffered writer of text and numbers into a ByteSink. Exporters stream, so that the output may
// be larger than memory.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/json_output.hpp"

namespace memlab::report::exports {

/// After a failure of the sink all output is discarded. Thread-safety: none.
class Output {
  public:
    explicit Output(model::ByteSink& sink) : sink_(sink) {}

    Output& operator<<(std::string_view text) {
        if (text.size() > sizeof buffer_ - used_) {
            flush();
        }
        if (text.size() > sizeof buffer_) {
            failed_ = failed_ || !sink_.write(text.data(), text.size());
        } else {
            text.copy(buffer_ + used_, text.size());
            used_ += text.size();
        }
        return *this;
    }
    Output& operator<<(char byte) { return *this << std::string_view(&byte, 1); }
    template <std::integral Integer>
    requires(!std::same_as<Integer, char>) Output& operator<<(Integer value) {
        char digits[24];
        const auto end = std::to_chars(digits, digits + sizeof digits, value);
        return *this << std::string_view(digits, static_cast<std::size_t>(end.ptr - digits));
    }

    /// Flushes; false when the sink has failed at any time.
    bool finish() {
        flush();
        return !failed_;
    }

  private:
    void flush() {
        failed_ = failed_ || !sink_.write(buffer_, used_);
        used_ = 0;
    }

    model::ByteSink& sink_;
    bool failed_ = false;
    std::size_t used_ = 0;
    char buffer_[1 << 16];
};

/// `text` as one line of well-formed UTF-8: invalid sequences become U+FFFD, line breaks and other
/// control characters become blanks.
std::string clean_name(std::string_view text);

/// "0x7f0012345678"
std::string hexadecimal(std::uint64_t value);

}  // namespace memlab::report::exports
