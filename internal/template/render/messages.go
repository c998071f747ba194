// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

// Messages about expressions.
const (
	msgAtPosition         = "line %d, column %d: %w"
	msgAtPositionText     = "line %d, column %d: %s"
	msgExpressionTooLong  = "the expression has %d bytes; at most %d are permitted"
	msgTooManyExpressions = "the template has too many expressions; at most %d are permitted"
	msgSourceTooLong      = "the expressions of the template are too long together; at most %d bytes are permitted"
	msgTooComplex         = "the expressions of the template are too complex together: use fewer or simpler expressions"
	msgKeyType            = "the keys of a map must be strings, integers or bools, not %s"
	msgNotUTF8            = "the expression is not valid UTF-8"
	msgExpressionInKey    = "keys cannot contain expressions"
	msgNotJSON            = "a value of type %s cannot be part of an object; convert it to a string, number, list or map"
	msgNotText            = "a value of type %s cannot be part of a text; convert it to a string"
	msgNotVariable        = "a value of type %s cannot be a variable"
	msgNotBool            = "the expression must have the type bool, not %s"

	msgTooExpensive    = "the expression costs more than %d"
	msgAllTooExpensive = "the expressions of the template cost more than %d together"

	msgNoMessages     = "message literals are not available"
	msgSelectField    = "%s can be used only with one of its fields"
	msgNoFunction     = "the function %s is not available"
	msgTooManyLoops   = "loops can be nested at most %d times"
	msgPatternLiteral = "the regular expression must be a literal"
	msgPatternTooLong = "the regular expression has %d bytes; at most %d are permitted"
	msgPatternInvalid = "the regular expression is invalid"
	//nolint:lll // The message is one line.
	msgPatternTooLarge  = "the regular expression has %d instructions when it is compiled; at most %d are permitted: reduce the repetitions"
	msgQuantity         = "%q is not a quantity with at most 32 digits and an exponent of at most 99"
	msgFlattenDepth     = "flatten with a depth is not available"
	msgNoSuchKey        = "no such key %q in %s"
	msgValueOfParameter = "; parameter %s is %q: see the %s"
)

// Messages about objects.
const (
	msgNotAnObject     = "must be an object"
	msgNotAString      = "must be a string"
	msgTooManyValues   = "the objects of the template contain too many values; at most %d are permitted"
	msgTooManyEntries  = "has %d entries; at most %d are permitted"
	msgTooDeep         = "must be nested at most %d times"
	msgAPIVersion      = "must be a version such as v1, or a group and a version such as apps/v1"
	msgKind            = "must be the name of a kind"
	msgList            = "a list of objects is not permitted: specify each object"
	msgOwnGroup        = "objects of this project are not permitted"
	msgStatus          = "the status is not part of a template"
	msgNamespaceField  = "the operator sets the namespace"
	msgMetadataField   = "only name, labels and annotations are permitted"
	msgReservedKey     = "keys of the domain nslifecycle.dev are reserved"
	msgStringData      = "the API server does not return stringData: use data and base64.encode(bytes(...))"
	msgOtherNamespace  = "must be %q"
	msgSourceAndCopy   = "set either template or copy"
	msgDuplicateObject = "another object of the template has the same group, kind and name: %s"
	msgNotAList        = "the template has no parameter with this name and type List"
	msgNameOfItem      = "the name must contain item: it must be different for each element"
	msgTooManyObjects  = "the template can contain %d objects, one for each element of forEach; at most %d are permitted"
	msgItem            = "element %q of %s: %w"
)

// Messages about the input, with the parameters.
const (
	msgInputTooLarge     = "%s: the %s of the namespace exceed a limit: %d entries, %d bytes in a value, %d bytes in total"
	msgUserTooLong       = "the name of the user who created the namespace has %d characters; at most %d are permitted"
	msgParameterRequired = "the parameter %s is required: set the %s"
)
