// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// The values of --log-format.
const (
	formatJSON = "json"
	formatText = "text"
)

// levels are the values of --log-level.
var levels = map[string]zapcore.Level{
	"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "error": zapcore.ErrorLevel,
}

// newLogger returns a logger that escapes control characters.
func newLogger(out io.Writer, level, format string) (logr.Logger, error) {
	lowest, ok := levels[level]
	if !ok {
		return logr.Logger{}, fmt.Errorf("--log-level %q is neither debug, info nor error", level)
	}
	// The stacks of errors are those of libraries, for example of controller-runtime after a conflict.
	settings := []zap.Opts{
		zap.WriteTo(printable.Log{Writer: out}), zap.Level(lowest), zap.StacktraceLevel(zapcore.PanicLevel),
	}
	switch format {
	case formatJSON:
	case formatText:
		settings = append(settings, zap.ConsoleEncoder(func(encoder *zapcore.EncoderConfig) {
			encoder.EncodeTime = zapcore.RFC3339TimeEncoder
		}))
	default:
		return logr.Logger{}, fmt.Errorf("--log-format %q is neither json nor text", format)
	}
	return zap.New(settings...), nil
}
