#include "report/reading/table_text.hpp"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace memlab::report {

namespace {

class Cursor {
  public:
    explicit Cursor(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

    bool at_end() {
        skip_space();
        return at_ == end_;
    }

    bool take(char wanted) {
        skip_space();
        const bool found = at_ != end_ && *at_ == wanted;
        at_ += found ? 1 : 0;
        return found;
    }

    bool take(std::string_view word) {
        skip_space();
        const bool found = std::string_view(at_, end_).starts_with(word);
        at_ += found ? word.size() : 0;
        return found;
    }

    bool number(std::uint64_t* value) {
        skip_space();
        const char* const begin = at_;
        const auto [end, error] = std::from_chars(at_, end_, *value);
        at_ = end;
        return error == std::errc() && (*begin != '0' || at_ - begin == 1);
    }

    /// A string of plain ASCII without escapes, which needs no decoding.
    bool text(std::string_view* value) {
        if (!take('"')) {
            return false;
        }
        const char* const begin = at_;
        while (at_ != end_ && *at_ >= ' ' && *at_ < 0x7f && *at_ != '"' && *at_ != '\\') {
            ++at_;
        }
        *value = std::string_view(begin, at_);
        return at_ != end_ && *at_++ == '"';
    }

    /// A comma-separated list between `open` and `close`; `element` parses each entry.
    template <class Element>
    bool list(char open, char close, const Element& element) {
        if (!take(open)) {
            return false;
        }
        if (take(close)) {
            return true;
        }
        do {
            if (!element()) {
                return false;
            }
        } while (take(','));
        return take(close);
    }

  private:
    void skip_space() {
        while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
            ++at_;
        }
    }

    const char* at_;
    const char* end_;
};

/// Reads the fields of a table's entry, in the order in which memlab writes them. `size`: of the
/// table that it refers to.
class EntryParser {
  public:
    EntryParser(Cursor& cursor, std::size_t size) : cursor_(cursor), size_(size) {}

    void position(model::FieldName name) {
        std::uint64_t unused = 0;
        number(name, unused);
    }
    void number(model::FieldName name, std::uint64_t& value) {
        good_ = key(name) && cursor_.number(&value);
    }
    void extra(model::FieldName name, std::uint64_t& value) { number(name, value); }
    void index(model::FieldName name, std::size_t& value, model::Table) {
        good_ = key(name) && position_in_table(value);
    }
    void text(model::FieldName name, std::string& value) {
        std::string_view read;
        good_ = key(name) && cursor_.text(&read);
        value = read;
    }
    void text_if_any(model::FieldName name, std::string& value) {
        std::string_view read;
        if (has(name)) {
            good_ = cursor_.text(&read);
            value = read;
        }
    }
    void flag(model::FieldName name, bool& value) {
        good_ = key(name) && ((value = cursor_.take("true")) || cursor_.take("false"));
    }
    void indexes(model::FieldName name, std::vector<std::size_t>& values, model::Table) {
        read_.clear();
        good_ = key(name) &&
                cursor_.list('[', ']', [&] { return position_in_table(read_.emplace_back()); });
        values = read_;  // without the growth's unused capacity
    }
    template <class Object>
    void object_or_null(model::FieldName name, std::optional<Object>& value) {
        good_ = key(name) && (cursor_.take("null") || object(value.emplace()));
    }
    template <class Object>
    void object_if_any(model::FieldName name, std::optional<Object>& value) {
        if (has(name)) {
            good_ = object(value.emplace());
        }
    }
    template <class Item>
    void list_if_any(model::FieldName name, std::vector<Item>& items) {
        if (!has(name)) {
            return;
        }
        good_ = cursor_.list('[', ']', [&] { return object(items.emplace_back()); });
    }

    template <class Object>
    bool object(Object& value) {
        if (!good_ || !cursor_.take('{')) {
            return false;
        }
        const bool outer = std::exchange(first_, true);
        Object::fields(value, *this);
        first_ = outer;
        return good_ && cursor_.take('}');
    }

  private:
    bool key(std::string_view name) {
        std::string_view found;
        return good_ && (std::exchange(first_, false) || cursor_.take(',')) &&
               cursor_.text(&found) && found == name && cursor_.take(':');
    }
    /// Whether that member comes next; passes over its name then.
    bool has(std::string_view name) {
        const Cursor before = cursor_;
        const bool first = first_;
        if (key(name)) {
            return true;
        }
        cursor_ = before;
        first_ = first;
        return false;
    }
    bool position_in_table(std::size_t& value) {
        std::uint64_t position = 0;
        const bool good = cursor_.number(&position) && position < size_;
        value = static_cast<std::size_t>(position);
        return good;
    }

    Cursor& cursor_;
    const std::size_t size_;
    bool good_ = true;
    bool first_ = true;  ///< no member of the object was read yet
    std::vector<std::size_t> read_ = {};
};

/// A comma-separated list up to the end of the text.
template <class Entry>
bool read_entries(std::string_view text, std::size_t size, std::vector<Entry>& out) {
    Cursor cursor(text);
    if (cursor.at_end()) {
        return true;
    }
    EntryParser parser(cursor, size);
    do {
        if (!parser.object(out.emplace_back())) {
            return false;
        }
    } while (cursor.take(','));
    return cursor.at_end();
}

}  // namespace

bool scan_tables(std::string_view text, int max_depth, TableTexts* tables) {
    int depth = 0;
    bool in_string = false;
    std::size_t begin = 0;
    std::string_view name;
    std::string_view* open = nullptr;
    int stacks = 0;
    int sites = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            i += c == '\\' ? 1 : 0;
            in_string = c != '"';
            if (!in_string && depth == 1) {
                name = text.substr(begin, i - begin);
            }
        } else if (c == '"') {
            in_string = true;
            begin = depth == 1 ? i + 1 : begin;
        } else if (c == '[' || c == '{') {
            if (++depth > max_depth) {
                return false;
            }
            if (depth == 2 && c == '[' && (name == "stacks" || name == "sites")) {
                ++(name == "stacks" ? stacks : sites);
                open = name == "stacks" ? &tables->stacks : &tables->sites;
                begin = i + 1;
            }
        } else if (c == ']' || c == '}') {
            if (depth == 2 && open != nullptr) {
                *open = text.substr(begin, i - begin);
                open = nullptr;
            }
            --depth;
        }
    }
    tables->found = stacks == 1 && sites == 1 && open == nullptr;
    return true;
}

std::string without_tables(std::string_view text, const TableTexts& tables) {
    std::string_view first = tables.stacks;
    std::string_view second = tables.sites;
    if (second.data() < first.data()) {
        std::swap(first, second);
    }
    const char* const end = text.data() + text.size();
    std::string rest(text.data(), first.data());
    rest.append(first.data() + first.size(), second.data());
    rest.append(second.data() + second.size(), end);
    return rest;
}

bool read_stacks(std::string_view text, std::size_t frame_count, std::vector<model::Stack>& out) {
    return read_entries(text, frame_count, out);
}

bool read_sites(std::string_view text, std::size_t stack_count, std::vector<model::Site>& out) {
    return read_entries(text, stack_count, out);
}

}  // namespace memlab::report
