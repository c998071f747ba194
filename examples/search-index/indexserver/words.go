// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"strings"
	"unicode"
)

// postings contains the number of occurrences of each word in each document.
type postings map[string]map[string]int

func (p postings) add(document Document) {
	for _, word := range wordsIn(document) {
		if p[word] == nil {
			p[word] = map[string]int{}
		}
		p[word][document.ID]++
	}
}

func (p postings) remove(document Document) {
	for _, word := range wordsIn(document) {
		delete(p[word], document.ID)
		if len(p[word]) == 0 {
			delete(p, word)
		}
	}
}

// find returns the IDs of the documents that contain all words, with the number of occurrences.
func (p postings) find(words []string) map[string]int {
	scores := map[string]int{}
	for id := range p[words[0]] {
		score := 0
		for _, word := range words {
			count := p[word][id]
			if count == 0 {
				score = 0
				break
			}
			score += count
		}
		if score > 0 {
			scores[id] = score
		}
	}
	return scores
}

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
