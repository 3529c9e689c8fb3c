#include "tests/fuzz/format_rules.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "model/utf8.hpp"

namespace memlab::fuzz {

namespace {

constexpr std::string_view digits = "0123456789";
constexpr std::string_view name_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:-";

/// Takes a text apart from its front; every step is false where the text is another.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : rest_(text) {}

    bool at_end() const { return rest_.empty(); }
    std::string_view rest() const { return rest_; }

    bool skip(std::string_view what) {
        const bool there = rest_.starts_with(what);
        rest_.remove_prefix(there ? what.size() : 0);
        return there;
    }
    /// What comes before `stop`, which is taken as well; nothing where it never comes.
    std::optional<std::string_view> until(std::string_view stop) {
        const std::size_t at = rest_.find(stop);
        if (at == std::string_view::npos) {
            return std::nullopt;
        }
        const std::string_view before = rest_.substr(0, at);
        rest_.remove_prefix(at + stop.size());
        return before;
    }
    /// One or more of these characters; empty: there is none.
    std::string_view run_of(std::string_view characters) {
        const std::string_view run = rest_.substr(0, rest_.find_first_not_of(characters));
        rest_.remove_prefix(run.size());
        return run;
    }
    std::optional<std::string_view> bytes(std::size_t count) {
        if (count > rest_.size()) {
            return std::nullopt;
        }
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }
    std::optional<std::uint64_t> little_endian(std::size_t count) {
        const auto taken = bytes(count);
        if (!taken) {
            return std::nullopt;
        }
        std::uint64_t value = 0;
        for (std::size_t i = count; i-- > 0;) {
            value = value << 8 | static_cast<unsigned char>((*taken)[i]);
        }
        return value;
    }
    std::optional<std::uint64_t> varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 70; shift += 7) {
            const auto byte = little_endian(1);
            if (!byte || (shift == 63 && *byte > 1)) {
                return std::nullopt;
            }
            value |= (*byte & 0x7f) << shift;
            if (*byte < 0x80) {
                return value;
            }
        }
        return std::nullopt;
    }

  private:
    std::string_view rest_;
};

/// What stands between tags and in attributes: no tag, and of '&' only references.
bool is_xml_text(std::string_view text) {
    if (text.find('<') != std::string_view::npos ||
        text.find("\xef\xbf\xbe") != std::string_view::npos ||
        text.find("\xef\xbf\xbf") != std::string_view::npos) {
        return false;
    }
    for (std::size_t at = text.find('&'); at != std::string_view::npos;
         at = text.find('&', at + 1)) {
        Scanner reference(text.substr(at));
        if (!reference.skip("&amp;") && !reference.skip("&lt;") && !reference.skip("&gt;") &&
            !reference.skip("&quot;") && !reference.skip("&#39;")) {
            return false;
        }
    }
    return true;
}

/// The rest of a tag behind its name; `empty`: it closes itself.
bool skip_attributes(Scanner& scanner, bool* empty) {
    std::set<std::string_view> seen;
    while (true) {
        const bool blank = !scanner.run_of(" \n").empty();
        *empty = scanner.skip("/");
        if (scanner.skip(">")) {
            return true;
        }
        const std::string_view name = scanner.run_of(name_characters);
        if (*empty || !blank || name.empty() || !seen.insert(name).second || !scanner.skip("=\"")) {
            return false;
        }
        const auto value = scanner.until("\"");
        if (!value || !is_xml_text(*value)) {
            return false;
        }
    }
}

/// The fields of a message of protocol buffers: varints as numbers, 64 bits left out, the rest as
/// text; the first of each. Nothing where it is no such message.
struct Fields {
    std::map<std::uint64_t, std::uint64_t> numbers;
    std::map<std::uint64_t, std::string_view> texts;
};
std::optional<Fields> message_fields(std::string_view bytes) {
    Fields fields;
    Scanner scanner(bytes);
    while (!scanner.at_end()) {
        const auto key = scanner.varint();
        if (!key || *key >> 3 == 0) {
            return std::nullopt;
        }
        const std::uint64_t field = *key >> 3;
        if ((*key & 7) == 1) {
            if (!scanner.bytes(8)) {
                return std::nullopt;
            }
            continue;
        }
        const auto number = scanner.varint();
        if (!number || ((*key & 7) != 0 && (*key & 7) != 2)) {
            return std::nullopt;
        }
        if ((*key & 7) == 0) {
            fields.numbers.emplace(field, *number);
            continue;
        }
        const auto text = scanner.bytes(*number);
        if (!text) {
            return std::nullopt;
        }
        fields.texts.emplace(field, *text);
    }
    return fields;
}

/// What a whole gzip file holds; nothing where it is none.
std::optional<std::string> unzipped(const std::string& bytes) {
    z_stream z{};
    if (inflateInit2(&z, 15 + 16) != Z_OK) {
        return std::nullopt;
    }
    // zlib does not write to its input.
    z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    z.avail_in = static_cast<uInt>(bytes.size());
    std::string text;
    int result = Z_OK;
    while (result == Z_OK) {
        char piece[1 << 14];
        z.next_out = reinterpret_cast<unsigned char*>(piece);
        z.avail_out = sizeof piece;
        result = inflate(&z, Z_NO_FLUSH);
        text.append(piece, sizeof piece - z.avail_out);
    }
    const bool whole = result == Z_STREAM_END && z.avail_in == 0;
    inflateEnd(&z);
    return whole ? std::optional(std::move(text)) : std::nullopt;
}

/// The depth of a pickle machine's stack, and where its marks are.
struct PickleStack {
    std::size_t depth = 0;
    std::vector<std::size_t> marks;
    std::size_t memos = 0;

    /// Takes back what came after the last mark; nothing where that leaves no value to add it to.
    std::optional<std::size_t> since_mark() {
        if (marks.empty() || marks.back() == 0) {
            return std::nullopt;
        }
        const std::size_t count = depth - marks.back();
        depth = marks.back();
        marks.pop_back();
        return count;
    }
};

/// One operation; false for what is none, or what finds the stack too short.
bool unpickle_step(Scanner& scanner, PickleStack& stack) {
    const auto operation = scanner.bytes(1);
    if (!operation) {
        return false;
    }
    const auto value = [&](bool there) {
        ++stack.depth;
        return there;
    };
    const auto memo = [&](std::size_t width) {
        const auto number = scanner.little_endian(width);
        return number && *number < stack.memos;
    };
    switch (operation->front()) {
        case '\x88':
        case '\x89':
        case '}':
        case ']':
            return value(true);
        case 'K':
            return value(scanner.bytes(1).has_value());
        case 'M':
            return value(scanner.bytes(2).has_value());
        case 'J':
            return value(scanner.bytes(4).has_value());
        case '\x8a': {
            const auto size = scanner.little_endian(1);
            return size && value(scanner.bytes(*size).has_value());
        }
        case 'X': {
            const auto size = scanner.little_endian(4);
            const auto text = size ? scanner.bytes(*size) : std::nullopt;
            return text && value(is_clean_text(*text));
        }
        case 'h':
            return value(memo(1));
        case 'j':
            return value(memo(4));
        case 'q':
        case 'r': {
            const auto number = scanner.little_endian(operation->front() == 'q' ? 1 : 4);
            return number && *number == stack.memos++ && stack.depth != 0;
        }
        case '(':
            stack.marks.push_back(stack.depth);
            return true;
        case 'u': {
            const auto count = stack.since_mark();
            return count && *count % 2 == 0;
        }
        case 'e':
            return stack.since_mark().has_value();
        case '\x86':
            return stack.depth-- >= 2;
        default:
            return false;
    }
}

}  // namespace

bool is_clean_text(std::string_view text) {
    while (!text.empty()) {
        const int length = model::utf8_length(text);
        if (length < 0) {
            return false;
        }
        const auto first = static_cast<unsigned char>(text[0]);
        const bool c1 = length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
        if ((first < 0x20 && first != '\n') || first == 0x7f || c1) {
            return false;
        }
        text.remove_prefix(static_cast<std::size_t>(length));
    }
    return true;
}

bool is_json(const std::string& text) {
    return !nlohmann::json::parse(text, nullptr, false).is_discarded();
}

bool is_xml(std::string_view text) {
    Scanner scanner(text);
    if (!is_clean_text(text) || !scanner.skip("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n")) {
        return false;
    }
    std::vector<std::string_view> open;
    bool any = false;
    while (true) {
        const std::string_view between = scanner.rest().substr(0, scanner.rest().find('<'));
        scanner.bytes(between.size());
        if (!is_xml_text(between) || (open.empty() && !between.empty() && between != "\n")) {
            return false;
        }
        if (scanner.at_end()) {
            return any && open.empty();
        }
        if (scanner.skip("<![CDATA[")) {
            if (open.empty() || !scanner.until("]]>")) {
                return false;
            }
            continue;
        }
        if (scanner.skip("</")) {
            if (open.empty() || scanner.until(">") != open.back()) {
                return false;
            }
            open.pop_back();
            continue;
        }
        scanner.skip("<");
        const std::string_view name = scanner.run_of(name_characters);
        bool empty = false;
        if (name.empty() || (open.empty() && any) || !skip_attributes(scanner, &empty)) {
            return false;
        }
        any = true;
        if (!empty) {
            open.push_back(name);
        }
    }
}

bool is_folded(std::string_view text, std::size_t weights) {
    Scanner scanner(text);
    while (!scanner.at_end()) {
        const auto line = scanner.until("\n");
        if (!line) {
            return false;
        }
        std::string_view stack = *line;
        bool any = false;
        for (std::size_t i = 0; i < weights; ++i) {
            const std::size_t blank = stack.rfind(' ');
            if (blank == std::string_view::npos) {
                return false;
            }
            const std::string_view weight = stack.substr(blank + 1);
            if (weight.empty() || weight.find_first_not_of(digits) != std::string_view::npos) {
                return false;
            }
            any = any || weight != "0";
            stack = stack.substr(0, blank);
        }
        if (!any || stack.empty() || stack.front() == ';' || stack.back() == ';' ||
            stack.find(";;") != std::string_view::npos) {
            return false;
        }
    }
    return is_clean_text(text);
}

bool is_pprof(const std::string& bytes) {
    const auto message = unzipped(bytes);
    const auto fields = message ? message_fields(*message) : std::nullopt;
    constexpr std::uint64_t last_field = 15;  // of Profile
    return fields && (fields->numbers.empty() || fields->numbers.rbegin()->first <= last_field) &&
           (fields->texts.empty() || fields->texts.rbegin()->first <= last_field);
}

bool is_perfetto(std::string_view bytes) {
    constexpr std::uint64_t clock_snapshot = 6;
    constexpr std::uint64_t sequence_id = 10;
    constexpr std::uint64_t track_event = 11;
    constexpr std::uint64_t interned_data = 12;
    constexpr std::uint64_t defaults = 59;
    constexpr std::uint64_t track_descriptor = 60;
    Scanner scanner(bytes);
    std::set<std::uint64_t> sequences;
    std::set<std::uint64_t> tracks;
    for (bool first = true; !scanner.at_end(); first = false) {
        const bool packet = scanner.varint() == (1U << 3 | 2U);  // Trace.packet
        const auto size = packet ? scanner.varint() : std::nullopt;
        const auto text = size ? scanner.bytes(*size) : std::nullopt;
        const auto fields = text ? message_fields(*text) : std::nullopt;
        if (!fields || first != !fields->numbers.contains(sequence_id)) {
            return false;
        }
        if (fields->texts.contains(clock_snapshot)) {
            if (!first && !sequences.insert(fields->numbers.at(sequence_id)).second) {
                return false;
            }
            continue;
        }
        if (first || !sequences.contains(fields->numbers.at(sequence_id))) {
            return false;
        }
        if (const auto data = fields->texts.find(interned_data);
            data != fields->texts.end() && !message_fields(data->second)) {
            return false;
        }
        if (fields->texts.contains(defaults)) {
            continue;
        }
        const auto track = fields->texts.find(track_descriptor);
        const auto event = fields->texts.find(track_event);
        if ((track == fields->texts.end()) == (event == fields->texts.end())) {
            return false;
        }
        if (track != fields->texts.end()) {
            const auto of = message_fields(track->second);
            if (!of || !of->numbers.contains(1) || !tracks.insert(of->numbers.at(1)).second) {
                return false;
            }
            continue;
        }
        const auto of = message_fields(event->second);
        if (!of || !of->numbers.contains(9) || !of->numbers.contains(11) ||
            !tracks.contains(of->numbers.at(11))) {
            return false;
        }
    }
    return !sequences.empty();
}

bool is_pickle(std::string_view bytes) {
    Scanner scanner(bytes);
    PickleStack stack;
    if (!scanner.skip("\x80\x02")) {
        return false;
    }
    while (!scanner.skip(".")) {
        if (!unpickle_step(scanner, stack)) {
            return false;
        }
    }
    return scanner.at_end() && stack.depth == 1 && stack.marks.empty();
}

bool is_openmetrics(std::string_view text) {
    Scanner scanner(text);
    std::string_view family;
    while (!scanner.at_end() && scanner.rest() != "# EOF\n") {
        if (scanner.skip("# ")) {
            const bool begins = scanner.skip("HELP ");
            if (!begins && !scanner.skip("TYPE ") && !scanner.skip("UNIT ")) {
                return false;
            }
            const std::string_view name = scanner.run_of(name_characters);
            if (name.empty() || (!begins && name != family) || !scanner.until("\n")) {
                return false;
            }
            family = name;
            continue;
        }
        if (scanner.run_of(name_characters) != family || !scanner.skip("{")) {
            return false;
        }
        do {
            if (scanner.run_of(name_characters).empty() || !scanner.skip("=\"")) {
                return false;
            }
            while (!scanner.skip("\"")) {
                scanner.skip("\\");
                const auto character = scanner.bytes(1);
                if (!character || *character == "\n") {
                    return false;
                }
            }
        } while (scanner.skip(","));
        if (!scanner.skip("} ") || scanner.run_of("0123456789.e+-").empty() ||
            !scanner.skip("\n")) {
            return false;
        }
    }
    return !scanner.at_end() && is_clean_text(text);
}

bool is_rmm_csv(std::string_view text) {
    Scanner scanner(text);
    if (!scanner.skip("Thread,Time,Action,Pointer,Size,Stream\n")) {
        return false;
    }
    while (!scanner.at_end()) {
        const auto row = scanner.until("\n");
        if (!row || std::count(row->begin(), row->end(), ',') != 5 ||
            row->find('"') != std::string_view::npos) {
            return false;
        }
    }
    return is_clean_text(text);
}

}  // namespace memlab::fuzz
