#include "report/table_text.hpp"

#include <array>
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

    /// An object; `member(name)` parses the value of each member.
    template <class Member>
    bool object(const Member& member) {
        return list('{', '}', [&] {
            std::string_view name;
            return text(&name) && take(':') && member(name);
        });
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

/// The numeric members of an object, each of which must occur exactly once.
template <std::size_t count>
class Numbers {
  public:
    using Fields = std::array<std::pair<std::string_view, std::uint64_t*>, count>;

    explicit Numbers(const Fields& fields) : fields_(fields) {}

    bool has(std::string_view name) {
        // memlab writes them in order: the next one is the first guess.
        for (std::size_t i = 0; i < count; ++i, ++next_) {
            next_ = next_ == count ? 0 : next_;
            if (fields_[next_].first == name) {
                return true;
            }
        }
        return false;
    }
    /// Parses the member that has() found.
    bool read(Cursor& cursor) {
        const std::uint32_t bit = 1U << next_;
        const bool first = (read_ & bit) == 0;
        read_ |= bit;
        return first && cursor.number(fields_[next_++].second);
    }
    bool complete() const { return read_ == (1U << count) - 1; }

  private:
    const Fields fields_;
    std::size_t next_ = 0;
    std::uint32_t read_ = 0;
};

bool read_lifetime(Cursor& cursor, std::optional<Lifetime>* lifetime) {
    if (cursor.take("null")) {
        return true;
    }
    Lifetime& times = lifetime->emplace();
    Numbers<3> numbers({{{"min", &times.min}, {"median", &times.median}, {"max", &times.max}}});
    return cursor.object([&](std::string_view name) {
        return numbers.has(name) && numbers.read(cursor);
    }) && numbers.complete();
}

bool read_label(Cursor& cursor, SiteLabel& label) {
    Numbers<3> numbers({{{"count", &label.count},
                         {"live_count", &label.live_count},
                         {"live_bytes", &label.live_bytes}}});
    bool named = false;
    return cursor.object([&](std::string_view name) {
        if (numbers.has(name)) {
            return numbers.read(cursor);
        }
        std::string_view text;
        if (named || name != "name" || !cursor.text(&text)) {
            return false;
        }
        named = true;
        label.name = text;
        return true;
    }) && named &&
           numbers.complete();
}

bool read_site(Cursor& cursor, std::size_t stack_count, Site& site) {
    std::uint64_t stack = 0;
    Numbers<13> numbers({{{"device", &site.device},
                          {"stack", &stack},
                          {"count", &site.count},
                          {"requested_bytes", &site.requested_bytes},
                          {"bytes", &site.bytes},
                          {"peak_bytes", &site.peak_bytes},
                          {"at_peak_count", &site.at_peak_count},
                          {"at_peak_bytes", &site.at_peak_bytes},
                          {"live_count", &site.live_count},
                          {"live_bytes", &site.live_bytes},
                          {"temporaries", &site.temporaries},
                          {"segment_count", &site.segment_count},
                          {"segment_bytes", &site.segment_bytes}}});
    bool kind = false;
    bool api = false;
    bool lifetime = false;
    bool labels = false;
    const auto first = [](bool& found) { return !std::exchange(found, true); };
    const auto text = [&cursor](std::string& value) {
        std::string_view read;
        const bool plain = cursor.text(&read);
        value = read;
        return plain;
    };
    const bool plain = cursor.object([&](std::string_view name) {
        if (name == "id" || name == "peak_time_ns") {  // not part of Site
            std::uint64_t unused = 0;
            return cursor.number(&unused);
        }
        if (numbers.has(name)) {
            return numbers.read(cursor);
        }
        if (name == "kind") {
            return first(kind) && text(site.kind);
        }
        if (name == "api") {
            return first(api) && text(site.api);
        }
        if (name == "lifetime_ns") {
            return first(lifetime) && read_lifetime(cursor, &site.lifetime);
        }
        return name == "labels" && first(labels) && cursor.list('[', ']', [&] {
            return read_label(cursor, site.labels.emplace_back());
        });
    });
    site.stack = static_cast<std::size_t>(stack);
    return plain && numbers.complete() && kind && api && lifetime && stack < stack_count;
}

/// A comma-separated list up to the end of the text.
template <class Entry>
bool read_entries(Cursor& cursor, const Entry& entry) {
    if (cursor.at_end()) {
        return true;
    }
    do {
        if (!entry()) {
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

bool read_stacks(std::string_view text, std::size_t frame_count, std::vector<Stack>& out) {
    Cursor cursor(text);
    std::vector<std::size_t> frames;
    return read_entries(cursor, [&] {
        frames.clear();
        Stack stack;
        bool has_frames = false;
        bool has_truncated = false;
        const bool plain = cursor.object([&](std::string_view name) {
            if (name == "frames" && !std::exchange(has_frames, true)) {
                return cursor.list('[', ']', [&] {
                    std::uint64_t frame = 0;
                    const bool good = cursor.number(&frame) && frame < frame_count;
                    frames.push_back(static_cast<std::size_t>(frame));
                    return good;
                });
            }
            if (name == "truncated" && !std::exchange(has_truncated, true)) {
                stack.truncated = cursor.take("true");
                return stack.truncated || cursor.take("false");
            }
            return false;
        });
        stack.frames = frames;
        out.push_back(std::move(stack));
        return plain && has_frames && has_truncated;
    });
}

bool read_sites(std::string_view text, std::size_t stack_count, std::vector<Site>& out) {
    Cursor cursor(text);
    return read_entries(cursor, [&] { return read_site(cursor, stack_count, out.emplace_back()); });
}

}  // namespace memlab::report
