// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import "math"

// Estimated sizes of values that have no length, and overheads.
const (
	sizeScalar = 16
	sizeEntry  = 32
)

// size is an upper bound of a value. The numbers are float64 because their products saturate.
type size struct {
	// length is the number of characters of a string, or of entries of a list or map.
	length float64
	// total is the size of the value with all that it contains, including overheads.
	total float64
	// text is the number of characters of all strings in the value.
	text float64
	// element is a bound of each element of a list, or value of a map. It is nil if there are none.
	element *size
	// key is a bound of each key of a map.
	key *size
}

var (
	scalar = &size{total: sizeScalar}
	empty  = &size{}
)

func stringSize(length float64) *size {
	return &size{length: length, total: length + sizeScalar, text: length}
}

func listSize(length float64, element *size) *size {
	return &size{
		length: length, element: element,
		total: sizeScalar + product(length, element.total+sizeEntry), text: product(length, element.text),
	}
}

// partsSize returns a bound of a list of at most a number of parts of a string: it has either many or long ones.
func partsSize(length, parts float64) *size {
	result := listSize(parts, stringSize(length))
	result.total = length + (parts+1)*(sizeEntry+sizeScalar)
	result.text = length
	return result
}

func mapSize(length float64, key, element *size) *size {
	entry := key.total + element.total + 2*sizeEntry
	return &size{
		length: length, key: key, element: element,
		total: sizeScalar + product(length, entry), text: product(length, key.text+element.text),
	}
}

// product is zero if a factor is zero and the other is infinite.
func product(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a * b
}

// either returns a bound of a value that has one of the bounds. A nil pointer means no value.
func either(a, b *size) *size {
	if a == nil {
		return b
	}
	if b == nil || a == b {
		return a
	}
	return &size{
		length:  math.Max(a.length, b.length),
		total:   math.Max(a.total, b.total),
		text:    math.Max(a.text, b.text),
		element: either(a.element, b.element),
		key:     either(a.key, b.key),
	}
}

// concatenation returns a bound of the sum of two strings, lists or maps.
func concatenation(a, b *size) *size {
	result := *either(a, b)
	result.length = a.length + b.length
	result.total = a.total + b.total
	result.text = a.text + b.text
	return &result
}

// repeated returns a bound of the sum of n strings, lists or maps.
func (s *size) repeated(n float64) *size {
	result := *s
	result.length = product(s.length, n)
	result.total = sizeScalar + product(s.total, n)
	result.text = product(s.text, n)
	return &result
}

// within returns the bound with a limit of the total.
func (s *size) within(total float64) *size {
	result := *s
	result.total = math.Min(s.total, total)
	result.length = math.Min(s.length, total)
	result.text = math.Min(s.text, total)
	if s.element != nil {
		result.element = s.element.within(total)
	}
	if s.key != nil {
		result.key = s.key.within(total)
	}
	return &result
}

// item returns a bound of each element of a list, or value of a map.
func (s *size) item() *size {
	if s.element == nil {
		return empty
	}
	return s.element
}

// content returns a bound of the elements and keys.
func (s *size) content() *size {
	return either(s.item(), s.key)
}

// nested returns the size of the elements of a list without the overhead of scalar ones.
func (s *size) nested() float64 {
	return math.Max(s.text, s.total-product(s.length, sizeEntry+sizeScalar))
}

// isString reports whether the bound is that of a string that is not empty.
func (s *size) isString() bool {
	return s.length > 0 && s.element == nil && s.key == nil
}
