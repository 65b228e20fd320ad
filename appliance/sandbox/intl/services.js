// What `Intl` means inside of the packages: the bundler puts this in place of the global name, which code of a step may change.
export const services = {};
