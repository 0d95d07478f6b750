//go:build !unix

package main

func readInBackground() {}
