// The built page, as it is, between two symbols. Without MEMLAB_HTML_PAGE there is none.
    .section .rodata
    .global memlab_html_page
    .hidden memlab_html_page
memlab_html_page:
#ifdef MEMLAB_HTML_PAGE
    .incbin MEMLAB_HTML_PAGE
#endif
    .global memlab_html_page_end
    .hidden memlab_html_page_end
memlab_html_page_end:
    .byte 0
    .section .note.GNU-stack, "", @progbits
