// A streaming JSON writer: exact numbers, strings as valid UTF-8 for any input. Independent of the
// report's format.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace memlab::model {

/// Receives the text in pieces; returning false stops the writer.
class ByteSink {
  public:
    ByteSink() = default;
    ByteSink(const ByteSink&) = delete;
    ByteSink& operator=(const ByteSink&) = delete;
    virtual ~ByteSink() = default;
    virtual bool write(const char* data, std::size_t size) = 0;
};

/// Collects the text in a string. May throw std::bad_alloc.
class StringSink final : public ByteSink {
  public:
    bool write(const char* data, std::size_t size) override {
        text.append(data, size);
        return true;
    }
    std::string text;
};

/// Writes one JSON value. The caller must balance begin and end calls, and write a key before each
/// value in an object. After the sink has failed all calls are ignored.
class JsonOutput {
  public:
    /// May throw std::bad_alloc.
    explicit JsonOutput(ByteSink& sink)
        : sink_(sink), buffer_(std::make_unique_for_overwrite<char[]>(buffer_size)) {}

    void begin_object() { open('{'); }
    void end_object() { close('}'); }
    void begin_array() { open('['); }
    void end_array() { close(']'); }
    /// Begins a new line before the next value (or key), for human readers.
    void new_line() { line_break_ = true; }

    void key(std::string_view name) {
        separate();
        text(name);
        put(':');
        after_key_ = true;
    }
    void string(std::string_view value) {
        separate();
        text(value);
    }
    template <std::integral Integer>
    void number(Integer value) {
        separate();
        char digits[24];
        const auto end = std::to_chars(digits, digits + sizeof digits, value);
        put(std::string_view(digits, static_cast<std::size_t>(end.ptr - digits)));
    }
    /// Digits that parse to the same double, nearly always the fewest. Must be finite.
    void number(double value);
    /// A value that is JSON already, such as a number with more digits than a double has.
    void verbatim(std::string_view value) {
        separate();
        put(value);
    }
    void boolean(bool value) {
        separate();
        put(value ? std::string_view("true") : std::string_view("false"));
    }
    void null() {
        separate();
        put("null");
    }

    template <std::integral Integer>
    void member(std::string_view name, Integer value) {
        key(name);
        if constexpr (std::same_as<Integer, bool>) {
            boolean(value);
        } else {
            number(value);
        }
    }
    void member(std::string_view name, std::string_view value) {
        key(name);
        string(value);
    }
    void member(std::string_view name, const char* value) { member(name, std::string_view(value)); }

    /// Flushes to the sink; false when the sink failed at any time.
    bool finish() {
        put('\n');
        flush();
        return !failed_;
    }

  private:
    void open(char bracket) {
        separate();
        put(bracket);
        first_ = true;
    }
    void close(char bracket) {
        put(bracket);
        first_ = false;
        line_break_ = false;
    }
    void separate() {
        if (after_key_) {
            after_key_ = false;
            return;
        }
        if (!first_) {
            put(',');
        }
        if (line_break_) {
            put('\n');
            line_break_ = false;
        }
        first_ = false;
    }
    void text(std::string_view value);
    void put(char c) {
        if (used_ == buffer_size) {
            flush();
        }
        buffer_[used_++] = c;
    }
    void put(std::string_view text) {
        for (const char c : text) {
            put(c);
        }
    }
    void flush() {
        failed_ = failed_ || !sink_.write(buffer_.get(), used_);
        used_ = 0;
    }

    ByteSink& sink_;
    bool first_ = true;
    bool after_key_ = false;
    bool line_break_ = false;
    bool failed_ = false;
    std::size_t used_ = 0;
    // Not in the object: the exiting thread may have a small stack.
    static constexpr std::size_t buffer_size = 8192;
    const std::unique_ptr<char[]> buffer_;
};

}  // namespace memlab::model
