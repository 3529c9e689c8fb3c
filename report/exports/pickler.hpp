// A writer of Python's pickle, protocol 2, with the few operations that PyTorch's memory_viz page
// understands. Strings are memoized: written once, then referred to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "report/exports/output.hpp"

namespace memlab::report::exports {

/// The caller balances begin and end calls. Thread-safety: none.
class Pickler {
  public:
    /// An open list; `waiting`: items since the last APPENDS.
    struct List {
        std::size_t waiting = 0;
    };

    explicit Pickler(Output& out) : out_(out) { out_ << "\x80\x02"; }

    void stop() { out_ << '.'; }

    void boolean(bool value) { out_ << (value ? '\x88' : '\x89'); }

    void number(std::uint64_t value) {
        if (value < 1U << 8) {
            out_ << 'K';
            little_endian(value, 1);
        } else if (value < 1U << 16) {
            out_ << 'M';
            little_endian(value, 2);
        } else if (value < 1ULL << 31) {
            out_ << 'J';
            little_endian(value, 4);
        } else {
            int bytes = 4;
            while (bytes < 8 && value >> (8 * bytes) != 0) {
                ++bytes;
            }
            // Two's complement: the highest bit is the sign.
            const bool sign = value >> (8 * bytes - 1) & 1;
            out_ << '\x8a' << static_cast<char>(bytes + (sign ? 1 : 0));
            little_endian(value, bytes);
            if (sign) {
                out_ << '\0';
            }
        }
    }

    /// `value` must be well-formed UTF-8.
    void text(const std::string& value) {
        const auto [at, is_new] = texts_.try_emplace(value, next_memo_);
        if (!is_new) {
            get(at->second);
            return;
        }
        out_ << 'X';
        little_endian(value.size(), 4);
        out_ << std::string_view(value);
        put();
    }

    void begin_dict() { out_ << "}("; }
    void end_dict() { out_ << 'u'; }

    List begin_list() {
        out_ << ']';
        return {};
    }
    /// Before each item.
    void item(List& list) {
        constexpr std::size_t batch = 1000;
        if (list.waiting == batch) {
            out_ << 'e';
            list.waiting = 0;
        }
        if (list.waiting++ == 0) {
            out_ << '(';
        }
    }
    void end_list(const List& list) {
        if (list.waiting != 0) {
            out_ << 'e';
        }
    }

    /// Makes a pair of the last two values.
    void pair() { out_ << '\x86'; }

    /// Memoizes the last value; returns its number for get().
    std::uint32_t put() {
        const std::uint32_t memo = next_memo_++;
        if (memo < 256) {
            out_ << 'q';
            little_endian(memo, 1);
        } else {
            out_ << 'r';
            little_endian(memo, 4);
        }
        return memo;
    }
    void get(std::uint32_t memo) {
        if (memo < 256) {
            out_ << 'h';
            little_endian(memo, 1);
        } else {
            out_ << 'j';
            little_endian(memo, 4);
        }
    }

  private:
    void little_endian(std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            out_ << static_cast<char>(value >> (8 * i) & 0xff);
        }
    }

    Output& out_;
    std::uint32_t next_memo_ = 0;
    std::unordered_map<std::string, std::uint32_t> texts_;
};

}  // namespace memlab::report::exports
