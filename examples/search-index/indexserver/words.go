// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"strings"
	"unicode"
)

// wordsIn returns the words in a document's text and fields.
func wordsIn(document Document) []string {
	words := wordsOf(document.Text)
	for _, value := range document.Fields {
		words = append(words, wordsOf(value)...)
	}
	return words
}

// wordsOf returns the words in text, in lowercase.
func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}
