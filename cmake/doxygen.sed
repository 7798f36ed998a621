# Our comments are plain text in //. Doxygen reads /// and ///<, in which \ @ # < > & $ % are commands.
# Explicit specialisations say nothing new.
/^template <>/,/^};/d
/\/\//!b
# A comment behind code, or one of its own.
/^ *\/\//!{
  /^[^"]*\/\//!b
  h
  s/^([^/]*(\/[^/]+)*)\/\/.*$/\1/
  x
  s/^[^/]*(\/[^/]+)*\/\/ ?//
  s/[\\@#<>&$%]/\\&/g
  x
  G
  s/\n/\/\/\/< /
  b
}
h
s/^( *)\/\/.*$/\1/
x
s/^ *\/\/ ?//
s/[\\@#<>&$%]/\\&/g
x
G
s/\n/\/\/\/ /
# What stands before the first line of code is about the file.
1s/^/\/\/\/ \\file\n/
