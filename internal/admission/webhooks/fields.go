// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
)

// Fields are the members of a JSON object that a webhook decodes, with the fields of their values; nil for all. A name
// that ends with a slash is a prefix.
type Fields map[string]Fields

// KeyOnly are the fields of a value that is not decoded. It becomes null.
var KeyOnly = Fields{}

const (
	fieldObject    = "object"
	fieldOldObject = "oldObject"
)

// limit returns the maximum size of what the server decodes of a review.
func (f Fields) limit() int {
	limit := maxHead
	for _, object := range []string{fieldObject, fieldOldObject} {
		if f.has(object) {
			limit += maxObject
		}
	}
	return limit
}

func (f Fields) has(name string) bool {
	_, ok := f[name]
	return ok
}

// reviewFields returns the parts of a review that a webhook decodes. decodeReview stops at the object, even if it is
// not decoded.
func reviewFields(fields Fields) Fields {
	request := Fields{
		"uid": nil, "resource": nil, "namespace": nil, "name": nil, "operation": nil, "userInfo": {"username": nil},
		fieldObject: KeyOnly,
	}
	maps.Copy(request, fields)
	return Fields{"request": request}
}

// find returns the fields to decode in the value of a member, and whether the member is decoded at all.
func (f Fields) find(key string) (Fields, bool) {
	if fields, ok := f[key]; ok {
		return fields, true
	}
	for name, fields := range f {
		if strings.HasSuffix(name, "/") && strings.HasPrefix(key, name) {
			return fields, true
		}
	}
	return nil, false
}

// errTooLarge means that a review exceeds a limit.
var errTooLarge = errors.New("the review is too large")

// pruner reads JSON and removes what is not among the fields, without buffering it. Objects can therefore have any
// size: the limits apply to what remains. The decoder rejects a result that is not valid JSON.
type pruner struct {
	source io.Reader
	limit  int
	size   int
	chunk  [4 << 10]byte
	out    bytes.Buffer
	err    error

	// levels are the objects around the current position of which only some members remain.
	levels []level
	state  pruneState
	// fields are the fields of the current value, and key is the current key with its quotation marks.
	fields Fields
	key    []byte
	// isKept is whether the current value remains. depth, inString and isEscaped are the position in it.
	isKept, inString, isEscaped bool
	depth                       int
}

type level struct {
	fields   Fields
	hasFirst bool // whether a member has been written
}

type pruneState int

const (
	beforeValue pruneState = iota
	inValue
	inLiteral
	beforeKey
	inKey
	afterKey
	atEnd
)

// prune returns a reader of the fields of a JSON object. It fails if these have more than limit bytes.
func prune(source io.Reader, fields Fields, limit int) io.Reader {
	return &pruner{source: source, limit: limit, fields: fields}
}

// Read implements io.Reader.
func (p *pruner) Read(target []byte) (int, error) {
	for p.out.Len() == 0 && p.err == nil {
		n, err := p.source.Read(p.chunk[:])
		p.write(p.chunk[:n])
		if p.err = err; p.state == atEnd {
			p.err = io.EOF
		}
		if p.size += p.out.Len(); p.size+len(p.key) > p.limit {
			p.err = fmt.Errorf("%w: its decoded parts exceed %d bytes", errTooLarge, p.limit)
			p.out.Reset()
		}
	}
	if p.out.Len() > 0 {
		return p.out.Read(target)
	}
	return 0, p.err
}

func (p *pruner) write(data []byte) {
	for i := 0; i < len(data) && p.state != atEnd; {
		switch p.state {
		case inValue:
			i += p.writeValue(data[i:])
		case inLiteral:
			i += p.writeLiteral(data[i:])
		default:
			i += p.writeByte(data[i])
		}
	}
}

// writeByte handles a byte outside values, and returns the number of bytes to skip.
func (p *pruner) writeByte(b byte) int {
	isSpace := b == ' ' || b == '\t' || b == '\n' || b == '\r'
	switch {
	case p.state == inKey:
		p.writeKey(b)
	case isSpace:
	case p.state == beforeKey && b == '"':
		p.state, p.key = inKey, append(p.key[:0], b)
	case p.state == beforeKey && b == '}':
		p.out.WriteByte(b)
		p.levels = p.levels[:len(p.levels)-1]
		p.endValue()
	case p.state == afterKey && b == ':':
		p.beginMember()
	case p.state == beforeValue:
		return p.beginValue(b)
	}
	return 1
}

func (p *pruner) writeKey(b byte) {
	p.key = append(p.key, b)
	switch {
	case p.isEscaped:
		p.isEscaped = false
	case b == '\\':
		p.isEscaped = true
	case b == '"':
		p.state = afterKey
	}
}

func (p *pruner) beginMember() {
	p.state = beforeValue
	current := &p.levels[len(p.levels)-1]
	if p.fields, p.isKept = current.fields.find(strings.Trim(string(p.key), `"`)); !p.isKept {
		return
	}
	if current.hasFirst {
		p.out.WriteByte(',')
	}
	current.hasFirst = true
	p.out.Write(p.key)
	p.out.WriteByte(':')
}

// beginValue handles the first byte of a value, and returns the number of bytes to skip.
func (p *pruner) beginValue(b byte) int {
	if b == '{' && p.fields != nil {
		p.out.WriteByte(b)
		p.levels = append(p.levels, level{fields: p.fields})
		p.state = beforeKey
		return 1
	}
	if p.fields != nil {
		p.out.WriteString("null")
		p.isKept = false
	}
	p.state, p.depth = inLiteral, 0
	if b == '"' || b == '{' || b == '[' {
		p.state = inValue
	}
	return 0
}

// writeLiteral handles a number or a name up to the byte that ends it, and returns their number.
func (p *pruner) writeLiteral(data []byte) int {
	end := bytes.IndexAny(data, ",}] \t\r\n")
	if end < 0 {
		end = len(data)
	} else {
		defer p.endValue()
	}
	if p.isKept {
		p.out.Write(data[:end])
	}
	return end
}

// writeValue handles bytes of a string, an object or a list, and returns their number.
func (p *pruner) writeValue(data []byte) int {
	end := p.scan(data)
	if p.isKept {
		p.out.Write(data[:end])
	}
	if p.depth == 0 && !p.inString {
		p.endValue()
	}
	return end
}

// scan moves the position in the current value, and returns the number of bytes.
func (p *pruner) scan(data []byte) int {
	for i, b := range data {
		switch {
		case p.isEscaped:
			p.isEscaped = false
		case p.inString && b == '\\':
			p.isEscaped = true
		case b == '"':
			p.inString = !p.inString
		case p.inString:
		case b == '{' || b == '[':
			p.depth++
		case b == '}' || b == ']':
			p.depth--
		}
		if p.depth == 0 && !p.inString {
			return i + 1
		}
	}
	return len(data)
}

func (p *pruner) endValue() {
	p.isKept, p.state = false, beforeKey
	if len(p.levels) == 0 {
		p.state = atEnd
	}
}
