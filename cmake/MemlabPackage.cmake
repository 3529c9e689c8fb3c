# CPack and install
