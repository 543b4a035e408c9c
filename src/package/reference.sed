# What a docstring says of one thing stands behind a word at the margin and two blanks or more.
s/^( *)\* ([A-Z][A-Za-z]+( with)?) {2,}([^ ])/\1* @par \2\n\1* \4/
