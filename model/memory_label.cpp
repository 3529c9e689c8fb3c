#include "model/memory_label.hpp"

#include <algorithm>

#include "model/bounded_sum.hpp"
#include "model/size_text.hpp"

namespace memlab::model {

namespace {

constexpr std::size_t max_shown = 3;

std::string printable(std::string text) {
    for (char& c : text) {
        const auto byte = static_cast<unsigned char>(c);
        constexpr unsigned char erase = 0x7f;
        c = byte < ' ' || byte == erase ? '?' : c;
    }
    return text;
}

/// The name, and what it holds where that is known.
std::string title(const MemoryLabel& label) {
    return "\"" + printable(label.name) + "\"" +
           (label.detail.empty() ? "" : " " + printable(label.detail));
}

std::string format_list(const std::vector<MemoryLabel>& labels, bool with_bytes) {
    std::string text;
    for (std::size_t i = 0; i < std::min(labels.size(), max_shown); ++i) {
        text += (i == 0 ? "" : ", ") + title(labels[i]) +
                (with_bytes ? " " + size_text(labels[i].bytes) : "");
    }
    if (labels.size() <= max_shown) {
        return text;
    }
    const bool counted = std::none_of(labels.begin(), labels.end(), [](const MemoryLabel& label) {
        return label.name == other_names;
    });
    return text + " and " +
           (counted ? std::to_string(labels.size() - max_shown) + " more" : "others");
}

}  // namespace

std::string format_labels(const std::vector<MemoryLabel>& labels, std::uint64_t bytes) {
    return format_list(labels, labels.size() != 1 || labels.front().bytes != bytes);
}

std::string format_label_names(const std::vector<MemoryLabel>& labels) {
    return format_list(labels, false);
}

void add_label(const MemoryLabel& label, std::vector<MemoryLabel>& labels) {
    const auto same = std::find_if(labels.begin(), labels.end(), [&](const MemoryLabel& each) {
        return each.name == label.name;
    });
    if (same == labels.end()) {
        labels.push_back(label);
        return;
    }
    keep_common_detail(*same, label);
    add_to(same->count, label.count);
    add_to(same->bytes, label.bytes);
}

void sort_labels(std::vector<MemoryLabel>& labels) {
    std::stable_sort(labels.begin(), labels.end(), [](const MemoryLabel& a, const MemoryLabel& b) {
        const bool a_is_last = a.name == other_names;
        const bool b_is_last = b.name == other_names;
        return a_is_last != b_is_last ? b_is_last : a.bytes > b.bytes;
    });
}

}  // namespace memlab::model
