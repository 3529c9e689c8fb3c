#include "report/check/settings_tree.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

// Header-only, so that the tools need no shared library of it.
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace memlab::report::check {

namespace {

/// A budget has three levels.
constexpr std::size_t max_depth = 16;
constexpr const char* too_deep = "is nested too deeply for a budget";
/// toml++ limits the nesting of brackets, but not of dotted keys: it creates a table for each part
/// and destroys them recursively. A key is always on one line.
constexpr std::ptrdiff_t max_dots = 256;

struct TooDeep {
    Position at;
};

Position position(const toml::source_region& source) {
    return {source.begin.line, source.begin.column};
}

template <typename Number>
std::string number_text(Number number) {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof digits, number);
    return {digits, end.ptr};
}

// toml++ 3.3 has undefined behaviour on characters from U+00A1 to U+0499 where it expects blanks.
// So every non-ASCII byte is passed to it as a private-use character (U+E080 to U+E0FF) and decoded
// in the result; columns therefore count bytes.
constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";

std::string encode_non_ascii(std::string_view text) {
    text.remove_prefix(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80) {
            out += c;
        } else {
            out += {'\xee', static_cast<char>(0x80 + (byte >> 6)),
                    static_cast<char>(0x80 + (byte & 0x3f))};
        }
    }
    return out;
}

std::string decode_non_ascii(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto at = [&](std::size_t ahead) {
            return i + ahead < text.size() ? static_cast<unsigned char>(text[i + ahead]) : 0U;
        };
        if (at(0) == 0xee && (at(1) == 0x82 || at(1) == 0x83) && (at(2) & 0xc0U) == 0x80) {
            out += static_cast<char>(((at(1) & 3U) << 6U) | (at(2) & 0x3fU));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by max_depth
Setting from_toml(const toml::node& node, std::size_t depth) {
    Setting setting;
    setting.at = position(node.source());
    if (depth > max_depth) {
        throw TooDeep{setting.at};
    }
    if (const auto* text = node.as_string()) {
        setting.value = Setting::Scalar{decode_non_ascii(text->get()), false};
    } else if (const auto* whole = node.as_integer()) {
        setting.value = Setting::Scalar{number_text(whole->get()), true};
    } else if (const auto* real = node.as_floating_point()) {
        setting.value =
            std::isfinite(real->get())
                ? std::variant<Setting::Other, Setting::Scalar, Setting::List, Setting::Table>(
                      Setting::Scalar{number_text(real->get()), true})
                : Setting::Other{"not a finite number"};
    } else if (const auto* list = node.as_array()) {
        Setting::List items;
        for (const toml::node& item : *list) {
            items.push_back(from_toml(item, depth + 1));
        }
        setting.value = std::move(items);
    } else if (const auto* table = node.as_table()) {
        Setting::Table members;
        for (const auto& [key, value] : *table) {
            members.push_back(
                {decode_non_ascii(key.str()), position(key.source()), from_toml(value, depth + 1)});
        }
        // toml++ sorts by key; errors are reported in the order of the file.
        std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
            return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
        });
        setting.value = std::move(members);
    } else {
        setting.value = Setting::Other{node.is_boolean() ? "true or false" : "a date or time"};
    }
    return setting;
}

/// nlohmann's parser reports no positions; it reads one character at a time, so this iterator
/// records how far it has read.
class CountingIterator {
  public:
    // NOLINTBEGIN(readability-identifier-naming): the names that iterators have
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    // NOLINTEND(readability-identifier-naming)

    CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
    reference operator*() const { return *at_; }
    CountingIterator& operator++() {
        *furthest_ = ++at_;
        return *this;
    }
    CountingIterator operator++(int) {
        CountingIterator before = *this;
        ++*this;
        return before;
    }
    bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
    bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

  private:
    const char* at_;
    const char** furthest_;
};

class JsonTree final : public nlohmann::json_sax<nlohmann::json> {
  public:
    JsonTree(std::string_view text, const char** furthest) : text_(text), furthest_(furthest) {}

    SettingsResult take() { return std::move(result_); }

    bool null() override { return add({here(), Setting::Other{"null"}}); }
    bool boolean(bool /*value*/) override { return add({here(), Setting::Other{"true or false"}}); }
    bool number_integer(number_integer_t value) override {
        return add({here(), Setting::Scalar{std::to_string(value), true}});
    }
    bool number_unsigned(number_unsigned_t value) override {
        return add({here(), Setting::Scalar{std::to_string(value), true}});
    }
    bool number_float(number_float_t /*value*/, const string_t& digits) override {
        return add({here(), Setting::Scalar{digits, true}});
    }
    bool string(string_t& value) override {
        return add({here(), Setting::Scalar{std::move(value), false}});
    }
    bool binary(binary_t& /*value*/) override { return false; }  // JSON has none
    bool start_object(std::size_t /*size*/) override { return open(Setting::Table()); }
    bool start_array(std::size_t /*size*/) override { return open(Setting::List()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        auto& table = std::get<Setting::Table>(open_.back().value);
        const Position at = start_of_string();
        if (std::any_of(table.begin(), table.end(),
                        [&](const Member& member) { return member.key == name; })) {
            return fail("has the key \"" + name + "\" twice; remove one", at);
        }
        table.push_back({std::move(name), at, {}});
        return true;
    }

    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::json::exception& /*error*/) override {
        return fail("is not valid JSON here", position_at(position == 0 ? 0 : position - 1));
    }

  private:
    bool fail(const std::string& what, Position at) {
        result_.error = what;
        result_.at = at;
        return false;
    }

    Position position_at(std::size_t offset) const {
        const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
        const std::size_t line_begin = before.rfind('\n');
        return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
                before.size() - (line_begin == std::string_view::npos ? 0 : line_begin + 1) + 1};
    }

    std::size_t consumed() const { return static_cast<std::size_t>(*furthest_ - text_.data()); }

    /// The position of the value just read: that of its key, if it has one.
    Position here() const {
        if (!open_.empty()) {
            if (const auto* table = std::get_if<Setting::Table>(&open_.back().value)) {
                return table->back().at;
            }
        }
        return position_at(consumed() == 0 ? 0 : consumed() - 1);
    }

    /// The string just read ends at the current position; its opening quote is the last unescaped
    /// one before.
    Position start_of_string() const {
        std::size_t quote = consumed() - 1;
        while (quote > 0) {
            --quote;
            std::size_t escapes = 0;
            while (escapes < quote && text_[quote - 1 - escapes] == '\\') {
                ++escapes;
            }
            if (text_[quote] == '"' && escapes % 2 == 0) {
                break;
            }
        }
        return position_at(quote);
    }

    bool add(Setting setting) {
        if (open_.empty()) {
            result_.root = std::move(setting);
        } else if (auto* table = std::get_if<Setting::Table>(&open_.back().value)) {
            table->back().value = std::move(setting);
        } else {
            std::get<Setting::List>(open_.back().value).push_back(std::move(setting));
        }
        return true;
    }

    template <typename Container>
    bool open(Container container) {
        if (open_.size() == max_depth) {
            return fail(too_deep, here());
        }
        open_.push_back({here(), std::move(container)});
        return true;
    }

    bool close() {
        Setting done = std::move(open_.back());
        open_.pop_back();
        return add(std::move(done));
    }

    std::string_view text_;
    const char** furthest_;
    std::vector<Setting> open_;
    SettingsResult result_;
};

}  // namespace

SettingsResult parse_toml(std::string_view text) {
    SettingsResult result;
    std::size_t line = 1;
    for (std::size_t begin = 0; begin < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view content = text.substr(begin, end - begin);
        if (std::count(content.begin(), content.end(), '.') > max_dots) {
            result.error = too_deep;
            result.at = {line, 1};
            return result;
        }
        begin = end + 1;
    }
    try {
        result.root = from_toml(toml::parse(encode_non_ascii(text)), 0);
    } catch (const TooDeep& error) {
        result.error = too_deep;
        result.at = error.at;
    } catch (const toml::parse_error& error) {
        result.error = "is not valid TOML here: " + decode_non_ascii(error.description());
        result.at = position(error.source());
    }
    return result;
}

SettingsResult parse_json(std::string_view text) {
    const char* furthest = text.data();
    JsonTree tree(text, &furthest);
    nlohmann::json::sax_parse(CountingIterator(text.data(), &furthest),
                              CountingIterator(text.data() + text.size(), &furthest), &tree);
    return tree.take();
}

}  // namespace memlab::report::check
