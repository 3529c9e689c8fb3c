#include "profiler/annotation_names.hpp"

#include "trace/folded_name.hpp"

namespace memlab::profiler {
namespace {

std::uint64_t hash_name(std::uint32_t domain, std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325ULL ^ domain;  // FNV-1a
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
    return hash ^ (hash >> 32);
}

}  // namespace

std::string_view truncate_utf8(std::string_view text, std::size_t max) {
    if (text.size() <= max) {
        return text;
    }
    const auto is_continuation = [text](std::size_t at) {
        return (static_cast<unsigned char>(text[at]) >> 6) == 2;
    };
    constexpr std::size_t max_continuations = 3;
    std::size_t end = max;
    while (end > 0 && max - end < max_continuations && is_continuation(end)) {
        --end;
    }
    return text.substr(0, is_continuation(end) ? max : end);
}

AnnotationNames::AnnotationNames(Bounds bounds) : bounds_(bounds), domains_(2) {}

const AnnotationName* AnnotationNames::find(std::uint32_t domain, std::string_view message) {
    message = truncate_utf8(message, max_bytes);
    auto& cached = cache_[hash_name(domain, message) % cache_size];
    const AnnotationName* const known = cached.load(std::memory_order_acquire);
    if (known != nullptr && known->domain == domain && known->message == message) {
        return known;
    }
    const AnnotationName* const name = find_slowly(domain, message);
    if (name->message == message) {  // not folded
        cached.store(name, std::memory_order_release);
    }
    return name;
}

const AnnotationName* AnnotationNames::find_slowly(std::uint32_t domain, std::string_view message) {
    const auto make_key = [domain](std::string_view text) {
        return std::to_string(domain) + ":" + std::string(text);
    };
    std::string text(message);
    const threads::LockGuard lock(mutex_);
    auto at = names_.find(make_key(text));
    if (at == names_.end() && names_.size() >= bounds_.exact) {
        text = trace::folded_name(message);
        at = names_.find(make_key(text));
        if (at == names_.end() && names_.size() >= bounds_.all) {
            domain = own_domain;
            text = "(other names)";
            at = names_.find(make_key(text));
        }
    }
    if (at != names_.end()) {
        return at->second.get();
    }
    auto name = std::make_unique<AnnotationName>();
    name->domain = domain;
    name->message = text;
    name->text = domains_[domain].empty() ? text : domains_[domain] + ":" + text;
    return names_.emplace(std::to_string(domain) + ":" + text, std::move(name)).first->second.get();
}

std::uint32_t AnnotationNames::domain(std::string_view name) {
    name = truncate_utf8(name, max_bytes);
    const threads::LockGuard lock(mutex_);
    for (std::uint32_t known = nvtx_domain + 1; known < domains_.size(); ++known) {
        if (domains_[known] == name) {
            return known;
        }
    }
    if (domains_.size() == max_domains) {
        return nvtx_domain;
    }
    domains_.emplace_back(name);
    return static_cast<std::uint32_t>(domains_.size() - 1);
}

}  // namespace memlab::profiler
