// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nslifecycle/nslifecycle/api/v1alpha1"
)

// Stdin is the name of the file that stands for stdin.
const Stdin = "-"

// ReadTemplate reads the only NamespaceTemplate in a file. Objects of other kinds are ignored.
func ReadTemplate(file string, stdin io.Reader) (*v1alpha1.NamespaceTemplate, error) {
	return readOne[v1alpha1.NamespaceTemplate](file, stdin, templateType)
}

// ReadTemplates reads and compiles all NamespaceTemplates in a file that contains at least one.
func ReadTemplates(file string, stdin io.Reader) (found []*Template, err error) {
	documents, err := readDocuments(file, stdin, templateType)
	if err == nil && len(documents) == 0 {
		err = fmt.Errorf("%s contains no %s of %s", file, templateType.Kind, templateType.APIVersion)
	}
	for _, document := range documents {
		object, err := decode[v1alpha1.NamespaceTemplate](file, document, templateType)
		if err != nil {
			return nil, err
		}
		compiled, err := Compile(object)
		if err != nil {
			return nil, err
		}
		found = append(found, compiled)
	}
	return found, err
}

// ReadNamespace reads the only Namespace in a file.
func ReadNamespace(file string, stdin io.Reader) (*corev1.Namespace, error) {
	return readOne[corev1.Namespace](file, stdin, metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"})
}

var templateType = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"}

func readOne[T any](file string, stdin io.Reader, of metav1.TypeMeta) (*T, error) {
	documents, err := readDocuments(file, stdin, of)
	if err == nil && len(documents) != 1 {
		err = fmt.Errorf("%s must contain exactly one %s of %s, got %d", file, of.Kind, of.APIVersion, len(documents))
	}
	if err != nil {
		return nil, err
	}
	return decode[T](file, documents[0], of)
}

// readDocuments returns the documents of a type in a file that the user passes, which can be a symbolic link or a pipe.
func readDocuments(file string, stdin io.Reader, of metav1.TypeMeta) (found [][]byte, err error) {
	var content []byte
	if file == Stdin {
		content, err = io.ReadAll(stdin)
	} else {
		content, err = os.ReadFile(file)
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for err == nil {
		var document []byte
		if document, err = reader.Read(); err != nil {
			break
		}
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(document, &is); err != nil {
			return nil, fmt.Errorf("failed to decode %s: %w", file, err)
		}
		if is == of {
			found = append(found, document)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("failed to read %s: %w", file, err)
	}
	return found, nil
}

// decode decodes a document. The error contains all unknown and duplicate fields.
func decode[T any](file string, document []byte, of metav1.TypeMeta) (*T, error) {
	if of == templateType {
		if err := validateSchema(document); err != nil {
			return nil, err
		}
	}
	object := new(T)
	encoded, err := yaml.YAMLToJSONStrict(document)
	if err == nil {
		var strict []error
		strict, err = json.UnmarshalStrict(encoded, object)
		err = errors.Join(append(strict, err)...)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to decode %s in %s: %w", of.Kind, file, err)
	}
	return object, nil
}
