// Whose memory a label names: an nn.Module's parameters, buffers, their gradients and the states
// that an optimizer keeps of them have labels that begin with the module's qualified name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace memlab::trace {

/// Whether a text is what Python takes for a name.
inline bool is_identifier(std::string_view text) {
    constexpr std::string_view digits = "0123456789";
    constexpr std::string_view letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return !text.empty() && digits.find(text[0]) == std::string_view::npos &&
           std::all_of(text.begin(), text.end(), [&](char each) {
               return letters.find(each) != std::string_view::npos ||
                      digits.find(each) != std::string_view::npos;
           });
}

/// What `known(name)` tells of the nn.Module that holds what has this label; its default value says
/// that there is none of the name, which is empty for the outermost one.
///
/// "encoder.0.weight", "encoder.0.weight.grad", "Adam.encoder.0.weight.exp_avg": "encoder.0", or
/// the longest beginning of it that is known. Of names joined by "+" (tied parameters) the first
/// counts. An optimizer's class begins with a capital letter. The outermost one without a name has
/// what is named like a parameter of its own: "weight", "weight.grad", "Adam.weight.exp_avg".
template <typename Known>
auto nn_module_owner(std::string_view label, const Known& known) {
    using Owner = decltype(known(label));
    constexpr std::size_t npos = std::string_view::npos;
    const bool tied = label.find('+') != npos;
    label = label.substr(0, label.find('+'));
    const std::size_t first = label.find('.');
    const bool by_class = first != npos && label[0] >= 'A' && label[0] <= 'Z';
    const std::string_view behind_class = by_class ? label.substr(first + 1) : std::string_view();
    for (std::string_view name : {label, behind_class}) {
        for (std::size_t end = name.rfind('.'); end != npos && end != 0; end = name.rfind('.')) {
            name = name.substr(0, end);
            if (const Owner owner = known(name); owner != Owner()) {
                return owner;
            }
        }
    }
    const std::size_t second = behind_class.find('.');
    const bool is_own = first == npos || label.substr(first) == ".grad";
    const bool is_state = by_class && (second != npos || tied);
    const std::string_view name = is_own ? label.substr(0, first) : behind_class.substr(0, second);
    return (is_own || is_state) && is_identifier(name) ? known(std::string_view()) : Owner();
}

}  // namespace memlab::trace
