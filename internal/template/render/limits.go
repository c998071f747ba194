// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package render

// Limits of a template. Sizes of strings are in bytes.
const (
	// maxExpression is the length of an expression.
	maxExpression = 4096
	// maxExpressions is the number of expressions in a template.
	maxExpressions = 512
	// maxSource is the length of all expressions in a template, and maxComplexity their complexity.
	maxSource     = 32 << 10
	maxComplexity = 5000
	// maxNesting is the depth to which expressions can be nested.
	maxNesting = 32
	// maxLoops is the depth to which loops can be nested.
	maxLoops = 5
	// maxFailures is the number of expressions with errors after which no more are compiled, and maxErrors
	// the number of all errors that are returned.
	maxFailures = 10
	maxErrors   = 32
	// maxPattern is the length of a regular expression, and maxPatternSize the number of its
	// instructions when it is compiled.
	maxPattern     = 256
	maxPatternSize = 2000
	// maxPrecision is the number of decimals of a number that format returns.
	maxPrecision = 32
	// MaxObjects is the number of objects in a template.
	MaxObjects = 128
	// maxManifestValues is the number of values in all objects of a template, with nested ones.
	maxManifestValues = 64 << 10
)

// Limits of the input.
const (
	maxUser            = 1024
	maxName            = 63
	maxEntries         = 256
	maxKey             = 317
	maxLabel           = 63
	maxLabelBytes      = 16 << 10
	maxAnnotation      = 4 << 10
	maxAnnotationBytes = 64 << 10
)

// Limits of an evaluation. For a unit of cost, an evaluation needs at most about two nanoseconds, and allocates at
// most one byte.
const (
	// maxCost is the cost of an expression, and maxTotalCost of all expressions in a rendering.
	maxCost      = 20_000_000
	maxTotalCost = 100_000_000
	// costNode is the cost of evaluating a node of an expression, apart from its arguments.
	costNode = 200
	// sizeScalar is the size of a value without its content, and sizeEntry what it needs in a list.
	sizeScalar = 16
	sizeEntry  = 32
	// interruptFrequency is the number of iterations after which CEL checks the context.
	interruptFrequency = 64
	// maxVariable is the size of the value of a variable.
	maxVariable = 64 << 10
	// maxString limits the length of a string in an object, and maxOutput the size of all objects.
	maxString = 64 << 10
	maxOutput = 1 << 20
	// maxDepth is the depth to which values can be nested.
	maxDepth = 64
)
